"""Message contracts: which JSON Schema the contents of an exchange and routing key must satisfy. No SQL, no AMQP."""
