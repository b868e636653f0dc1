"""The queue, the inbox, keys and the archive as tests fill and read them through SQL."""
