"""The product end to end on private servers: an example shop, two relays of which one is killed, a consumer, and a summary that adds up."""

from relay.demo.run import check, main

__all__ = ["check", "main"]
