"""`relay pipeline metrics`: counts by hour, exchange and code."""
