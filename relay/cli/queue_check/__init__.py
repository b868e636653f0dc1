"""`relay check`: whether a relay will find each message of the queue."""
