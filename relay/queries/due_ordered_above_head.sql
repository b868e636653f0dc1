    -- Heads of ordering keys above the lanes' head, by queue_message_lane_idx. The lane rows are locked FOR SHARE and their
    -- epoch is checked on the locked version: a plain EXISTS let two owners in. No SKIP LOCKED: the owner is alone.
    SELECT message.xid, message.seq, pg_column_size(message.content) + coalesce(pg_column_size(message.body), 0) AS size
    FROM (
        SELECT candidate.xid, candidate.seq, candidate.lane
        FROM unnest(%(lanes)s::smallint[]) AS mine (lane)
        CROSS JOIN LATERAL (
            SELECT ahead.xid, ahead.seq, ahead.lane
            FROM @schema@.queue_message AS ahead
            WHERE ahead.lane = mine.lane AND ahead.ordering_key IS NOT NULL
                AND (ahead.xid, ahead.seq) > (%(head_xid)s::text::xid8, %(head_seq)s)
                AND ahead.lock_expires_at IS NULL AND ahead.available_at IS NULL AND ahead.exchange <> ALL(%(except)s::text[])
                AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold AS hold WHERE hold.ordering_key = ahead.ordering_key)
                AND NOT EXISTS (SELECT FROM @schema@.queue_message AS earlier
                    WHERE earlier.ordering_key = ahead.ordering_key AND (earlier.xid, earlier.seq) < (ahead.xid, ahead.seq))
            ORDER BY ahead.xid, ahead.seq
            LIMIT %(limit)s
        ) AS candidate
        ORDER BY candidate.xid, candidate.seq
        LIMIT %(limit)s
    ) AS head
    JOIN @schema@.queue_message AS message ON (message.xid, message.seq) = (head.xid, head.seq)
    JOIN @schema@.queue_message_lane AS lane ON lane.lane = head.lane
    JOIN unnest(%(lanes)s::smallint[], %(epochs)s::bigint[]) AS owned (lane, epoch) ON (owned.lane, owned.epoch) = (lane.lane, lane.epoch)
    WHERE lane.owner = %(relay_id)s AND lane.lease_expires_at > coalesce(%(now)s, now())
        AND message.lock_expires_at IS NULL AND message.available_at IS NULL
    FOR SHARE OF lane
    FOR UPDATE OF message
