-- When the archive was last compared with the lake, whatever came out.
SELECT max(compared_at) FROM @schema@.queue_message_export
