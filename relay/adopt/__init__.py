"""Moves from another outbox: watches its table, diverts new rows from one moment on, empties the table, or returns new rows to it."""
