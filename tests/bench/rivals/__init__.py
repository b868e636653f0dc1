"""What other outbox relays do on the same servers with the same messages: `python -m tests.bench.rivals`."""
