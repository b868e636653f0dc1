"""Ways to find claimable messages, side by side: what each costs the database, and what each finds."""
