"""`relay pipeline export`: the archive's rows into the lake."""
