"""Message contracts: the JSON Schemas that contents of an exchange and routing key must satisfy. No SQL, no AMQP."""
