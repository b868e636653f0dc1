SELECT version, name, checksum FROM @schema@.queue_message_migration ORDER BY version
