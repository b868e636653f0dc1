"""An AMQP broker in memory."""
