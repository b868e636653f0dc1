"""A transactional outbox relay: rows of PostgreSQL become confirmed messages of RabbitMQ."""

__version__ = "0.1.0"
