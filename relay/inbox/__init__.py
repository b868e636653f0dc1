"""The receive direction: deliveries from queues become messages of an inbox."""
