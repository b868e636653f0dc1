SELECT renumbered, more, looked, stays FROM @schema@.queue_message_renumber(10000)
