"""Spark's session and work in its tasks."""
