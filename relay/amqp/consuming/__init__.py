"""Consuming: queues, their channels, and deliveries as they arrive."""
