"""Periodic work beside the loop."""
