-- Take back a message that no relay has claimed.
SELECT @schema@.queue_message_cancel(%(id)s) AS cancelled
