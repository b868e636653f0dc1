-- Record that the lake was not found as it should be, and why.
SELECT @schema@.queue_message_export_unseen(%(problem)s)
