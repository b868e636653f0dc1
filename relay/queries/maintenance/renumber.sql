-- Look at up to so many messages and give those of another cluster ids of this one. Returns how many got them, whether more can be done,
-- and how many were looked at, null where it is another's turn. At the end of a walk also why one had to stay.
SELECT renumbered, more, looked, stays FROM @schema@.queue_message_renumber(%(most)s)
