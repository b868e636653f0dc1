"""Publishing: a channel for each exchange, confirms, and the broker's refusals."""
