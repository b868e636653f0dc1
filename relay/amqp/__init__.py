"""The only package that speaks AMQP: one supervised connection, a channel per exchange, confirms matched by tag."""
