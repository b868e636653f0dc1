-- Look at up to so many messages and give those of another cluster ids of this one: how many got them, whether more can be done, how many were
-- looked at, null where it is another's turn, and at the end of a walk why one had to stay.
SELECT renumbered, more, looked, stays FROM @schema@.queue_message_renumber(%(most)s)
