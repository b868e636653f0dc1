-- In mode always, notify relays again of the oldest waiting messages.
SELECT @schema@.queue_message_renotify()
