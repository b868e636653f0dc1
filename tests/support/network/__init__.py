"""What is between a relay and its servers: proxies that delay, cut and lose, and a network of its own."""
