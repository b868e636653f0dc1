INSERT INTO @schema@.queue_message_migration (version, name, checksum) VALUES @values@;
