-- Give up to so many messages of another cluster ids of this one; how many got them, and whether more are left.
SELECT renumbered, more FROM @schema@.queue_message_renumber(%(most)s)
