"""Logs, metrics and probes: what a relay shows of itself."""
