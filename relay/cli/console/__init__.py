"""`relay console`: pages about one outbox for a browser on the same machine."""
