SELECT @schema@.queue_message_has_foreign_ids()
