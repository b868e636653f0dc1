"""What moving messages costs: the relay beside a publisher that does nothing else, on private servers of one machine."""
