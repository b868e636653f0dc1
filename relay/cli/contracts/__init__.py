"""`relay contract`: reads a schema, and tries it on the archive."""
