-- How many dead messages are not acknowledged, and since when the oldest waits.
SELECT count(*), min(d.archived_at)
FROM @schema@.queue_message_dead d
WHERE NOT EXISTS (SELECT FROM @schema@.queue_message_dead_ack a WHERE (a.xid, a.seq) = (d.xid, d.seq))
