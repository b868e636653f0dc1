    -- Heads of the listed ordering keys that stand ready or whose wait is over: successors of settled heads, and pending transactions' keys.
    WITH head AS MATERIALIZED (
        SELECT first.xid, first.seq, first.lane
        FROM unnest(%(keys)s::text[]) AS freed (ordering_key)
        CROSS JOIN LATERAL (
            SELECT one.xid, one.seq, one.lane, one.lock_expires_at, one.available_at, one.exchange, one.locked_by
            FROM @schema@.queue_message AS one
            WHERE one.ordering_key = freed.ordering_key
            ORDER BY one.xid, one.seq
            LIMIT 1
        ) AS first
        WHERE first.lock_expires_at IS NULL AND (first.available_at IS NULL OR first.available_at <= coalesce(%(now)s, now()) AND first.locked_by IS NULL)
            AND first.exchange <> ALL(%(except)s::text[])
            AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold AS hold WHERE hold.ordering_key = freed.ordering_key)
        ORDER BY first.xid, first.seq
        LIMIT %(limit)s
    )
    SELECT message.xid, message.seq, @size@
    FROM head
    JOIN @schema@.queue_message AS message ON (message.xid, message.seq) = (head.xid, head.seq)
    JOIN @schema@.queue_message_lane AS lane ON lane.lane = head.lane
    JOIN unnest(%(lanes)s::smallint[], %(epochs)s::bigint[]) AS owned (lane, epoch) ON (owned.lane, owned.epoch) = (lane.lane, lane.epoch)
    WHERE lane.owner = %(relay_id)s AND lane.lease_expires_at > coalesce(%(now)s, now())
        AND message.lock_expires_at IS NULL
    FOR SHARE OF lane
    FOR UPDATE OF message
