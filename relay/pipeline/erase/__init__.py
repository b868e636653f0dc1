"""`relay pipeline erase`: erases the contents of chosen messages in the lake."""
