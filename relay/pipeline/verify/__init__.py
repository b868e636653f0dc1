"""`relay pipeline verify`: the archive compared with the lake."""
