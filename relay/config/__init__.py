"""Settings: the `RELAY_*` variables, where they come from, and what they may be."""
