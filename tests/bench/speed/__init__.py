"""What moving messages costs: the relay compared with a publisher that does nothing else, on private servers of one machine."""
