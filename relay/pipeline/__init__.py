"""Copies the archive into a lake, and works with the copy: export, metrics, report, verification, replay, reconciliation."""
