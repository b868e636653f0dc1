    -- Heads of ordering keys above the lanes' head, by queue_message_ordered_idx in claim order: the third column of the order lets no
    -- other index give it, and lane + 0 lets the index be walked in order only. A head is probed by its key, where a join would be
    -- planned over the whole table. The lane rows are locked FOR SHARE and their epoch is checked on the locked version:
    -- a plain EXISTS let two owners in. No SKIP LOCKED: the owner is alone.
    WITH head AS MATERIALIZED (
        SELECT ahead.xid, ahead.seq, ahead.lane
        FROM @schema@.queue_message AS ahead
        WHERE (ahead.xid, ahead.seq) > (%(head_xid)s::text::xid8, %(head_seq)s)
            AND ahead.ordering_key IS NOT NULL AND ahead.lane + 0 = ANY(%(lanes)s::smallint[])
            AND ahead.lock_expires_at IS NULL AND ahead.available_at IS NULL AND ahead.exchange <> ALL(%(except)s::text[])
            AND (ahead.xid, ahead.seq) = (
                SELECT first.xid, first.seq FROM @schema@.queue_message AS first
                WHERE first.ordering_key = ahead.ordering_key ORDER BY first.xid, first.seq LIMIT 1)
            AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold AS hold WHERE hold.ordering_key = ahead.ordering_key OFFSET 0)
        ORDER BY ahead.xid, ahead.seq, ahead.lane
        LIMIT %(limit)s
    )
    SELECT message.xid, message.seq, @size@
    FROM head
    JOIN @schema@.queue_message AS message ON (message.xid, message.seq) = (head.xid, head.seq)
    JOIN @schema@.queue_message_lane AS lane ON lane.lane = head.lane
    JOIN unnest(%(lanes)s::smallint[], %(epochs)s::bigint[]) AS owned (lane, epoch) ON (owned.lane, owned.epoch) = (lane.lane, lane.epoch)
    WHERE lane.owner = %(relay_id)s AND lane.lease_expires_at > coalesce(%(now)s, now())
        AND message.lock_expires_at IS NULL AND message.available_at IS NULL
    FOR SHARE OF lane
    FOR UPDATE OF message
