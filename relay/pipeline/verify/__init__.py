"""`relay pipeline verify`: compares the archive with the lake."""
