"""Test support for applications: asserts which messages a transaction enqueued, and runs the relay with an in-memory broker.

See docs/testing.md.
"""
