"""A claim as AMQP frames: encoding, options, JSON and trace context."""
