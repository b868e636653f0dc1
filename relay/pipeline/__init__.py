"""The archive into a lake, and numbers out of it: export, metrics, report, verification, replay, reconciliation."""
