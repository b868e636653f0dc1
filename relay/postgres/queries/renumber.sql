-- Look at up to so many messages and give those of another cluster ids of this one: how many got them, whether more are left, and how many
-- were looked at, null where it is another's turn.
SELECT renumbered, more, looked FROM @schema@.queue_message_renumber(%(most)s)
