SELECT count(*) FROM inbox.queue_message_archive
