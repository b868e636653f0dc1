"""What to claim next: lanes of ordered keys, streams of other messages, their limits and shares."""
