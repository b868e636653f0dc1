"""The demo of the whole product on private servers: an example shop, two relays (one is killed), a consumer, and a summary."""

from relay.demo.run import check, main

__all__ = ["check", "main"]
