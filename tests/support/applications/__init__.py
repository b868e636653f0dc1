"""Applications, libraries and other systems' outboxes that write to a queue."""
