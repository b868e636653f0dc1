"""URLs and outbound connections: secrets, transport security, and an HTTP client that checks each address before it connects."""
