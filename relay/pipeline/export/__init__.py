"""`relay pipeline export`: copies the archive's rows into the lake."""
