SELECT renumbered, more, looked FROM @schema@.queue_message_renumber(10000)
