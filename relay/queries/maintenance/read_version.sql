-- The newest migration that was applied.
SELECT coalesce(max(version), 0) FROM @schema@.queue_message_migration
