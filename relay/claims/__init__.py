"""What to claim next: lanes of ordered keys, streams of the others, their limits and shares."""
