"""Settings: the `RELAY_*` variables, their sources and their allowed values."""
