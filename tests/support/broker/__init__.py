"""RabbitMQ and its doubles as tests speak to them."""
