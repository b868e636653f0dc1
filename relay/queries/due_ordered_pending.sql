    -- Heads of ordering keys in transactions that were still running when the lanes' head passed them.
    SELECT message.xid, message.seq, @size@
    FROM @schema@.queue_message AS message
    JOIN @schema@.queue_message_lane AS lane ON lane.lane = message.lane
    JOIN unnest(%(lanes)s::smallint[], %(epochs)s::bigint[]) AS owned (lane, epoch) ON (owned.lane, owned.epoch) = (lane.lane, lane.epoch)
    WHERE message.xid = ANY(%(pending)s::text::xid8[]) AND message.ordering_key IS NOT NULL
        AND message.lock_expires_at IS NULL AND message.available_at IS NULL AND message.exchange <> ALL(%(except)s::text[])
        AND lane.owner = %(relay_id)s AND lane.lease_expires_at > coalesce(%(now)s, now())
        AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold AS hold WHERE hold.ordering_key = message.ordering_key)
        AND NOT EXISTS (SELECT FROM @schema@.queue_message AS earlier
            WHERE earlier.ordering_key = message.ordering_key AND (earlier.xid, earlier.seq) < (message.xid, message.seq))
    ORDER BY message.xid, message.seq
    LIMIT %(limit)s
    FOR SHARE OF lane
    FOR UPDATE OF message
