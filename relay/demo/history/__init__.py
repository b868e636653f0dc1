"""The demo of the whole pipeline on private servers: some days of messages, a lake, numbers, retention, replay, and a summary."""

from relay.demo.history.run import check, main

__all__ = ["check", "main"]
