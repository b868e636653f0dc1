"""`relay pipeline metrics`: counts messages by window, hour and day, exchange, routing key and code."""
