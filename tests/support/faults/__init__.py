"""The faults of docs/faults.md: what they are, how they are played, and what an operator sees."""
