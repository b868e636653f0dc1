"""Message contracts: the JSON Schema that contents of an exchange and routing key must satisfy. No SQL, no AMQP."""
