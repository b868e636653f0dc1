    -- Heads of ordering keys whose wait is over, by queue_message_available_at_idx; probed and fenced as in due_ordered_above_head.
    WITH head AS MATERIALIZED (
        SELECT ready.xid, ready.seq, ready.lane
        FROM @schema@.queue_message AS ready
        WHERE ready.available_at <= coalesce(%(now)s, now())
            AND ready.ordering_key IS NOT NULL AND ready.lane = ANY(%(lanes)s::smallint[])
            AND ready.lock_expires_at IS NULL AND ready.locked_by IS NULL AND ready.exchange <> ALL(%(except)s::text[])
            AND (ready.xid, ready.seq) = (
                SELECT first.xid, first.seq FROM @schema@.queue_message AS first
                WHERE first.ordering_key = ready.ordering_key ORDER BY first.xid, first.seq LIMIT 1)
            AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold AS hold WHERE hold.ordering_key = ready.ordering_key OFFSET 0)
        ORDER BY ready.available_at
        LIMIT %(limit)s
    )
    SELECT message.xid, message.seq, @size@
    FROM head
    JOIN @schema@.queue_message AS message ON (message.xid, message.seq) = (head.xid, head.seq)
    JOIN @schema@.queue_message_lane AS lane ON lane.lane = head.lane
    JOIN unnest(%(lanes)s::smallint[], %(epochs)s::bigint[]) AS owned (lane, epoch) ON (owned.lane, owned.epoch) = (lane.lane, lane.epoch)
    WHERE lane.owner = %(relay_id)s AND lane.lease_expires_at > coalesce(%(now)s, now())
        AND message.lock_expires_at IS NULL AND message.locked_by IS NULL AND message.available_at <= coalesce(%(now)s, now())
    FOR SHARE OF lane
    FOR UPDATE OF message
