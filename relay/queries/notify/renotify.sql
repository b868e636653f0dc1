-- In mode always, notify the oldest waiting messages again.
SELECT @schema@.queue_message_renotify()
