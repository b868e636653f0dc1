-- Look at up to so many messages and give those of another cluster ids of this one. Returns how many got new ids, whether more can be done,
-- and how many were looked at, null while another session is at it. At the end of a walk also why a message had to stay.
SELECT renumbered, more, looked, stays FROM @schema@.queue_message_renumber(%(most)s)
