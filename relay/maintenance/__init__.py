"""Periodic tasks next to the loop."""
