"""`relay check`: checks whether a relay will find each message of the queue."""
