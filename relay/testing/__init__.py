"""A test double for applications: what a transaction enqueued, and the whole relay with a broker in memory. See docs/testing.md."""
