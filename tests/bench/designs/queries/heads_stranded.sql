-- Unordered messages that are claimable below every living head were stepped over while another claimer held them and rolled back
-- (SKIP LOCKED): make them due. What the asking relay will still claim by itself, and what may be in a running transaction's reach, is
-- left alone. Should find none.
WITH bound AS (
    SELECT head_xid, head_seq
    FROM @schema@.queue_message_relay
    WHERE heartbeat_at > coalesce(%(now)s, now()) - make_interval(secs => %(silence)s)
    ORDER BY head_xid, head_seq
    LIMIT 1
), stranded AS (
    SELECT message.xid, message.seq
    FROM bound
    JOIN @schema@.queue_message AS message ON (message.xid, message.seq) <= (bound.head_xid, bound.head_seq)
    WHERE (message.xid, message.seq) < (%(below_xid)s::text::xid8, %(below_seq)s)
        AND message.lock_expires_at IS NULL AND message.available_at IS NULL AND message.ordering_key IS NULL
        AND message.xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY message.xid, message.seq
    LIMIT 1000
    FOR UPDATE OF message SKIP LOCKED
)
UPDATE @schema@.queue_message AS message
SET available_at = coalesce(%(now)s, now())
FROM stranded
WHERE (message.xid, message.seq) = (stranded.xid, stranded.seq)
RETURNING message.seq
