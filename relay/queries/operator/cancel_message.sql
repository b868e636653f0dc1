-- Take back a message that nobody has claimed.
SELECT @schema@.queue_message_cancel(%(id)s) AS cancelled
