-- When the archive was last compared with the lake, whatever the result was.
SELECT max(compared_at) FROM @schema@.queue_message_export
