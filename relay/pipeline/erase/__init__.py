"""`relay pipeline erase`: contents of chosen messages leave the lake."""
