"""`relay contract`: where a schema comes from, and its trial on the archive."""
