-- Answer a dead message; how many of that id were answered now.
SELECT @schema@.queue_message_dead_acknowledge(%(id)s, note => %(note)s) AS answered
