"""The pipeline end to end on private servers: some days of messages, a lake, numbers, retention, replay, and a summary that adds up."""

from relay.demo.history.run import check, main

__all__ = ["check", "main"]
