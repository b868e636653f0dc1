"""Publishing: a channel for each exchange, confirms, and what the broker refuses."""
