SELECT renumbered, more FROM @schema@.queue_message_renumber(5000)
