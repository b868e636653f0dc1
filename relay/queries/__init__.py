"""SQL statements of the relay, one in each file, in folders by who runs them."""
