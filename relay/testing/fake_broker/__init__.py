"""An in-memory AMQP broker."""
