"""URLs and outbound connections: secrets, transport security and address rules."""
