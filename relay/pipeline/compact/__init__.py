"""`relay pipeline compact`: merges the small files of a day."""
