    -- Heads of ordering keys by their positions, if they are still ready. The rows of their lanes are locked FOR SHARE, once each and in
    -- order, and their epochs are checked on the locked versions: a plain EXISTS let two owners in. A head that an application has locked
    -- is stepped over, which holds up its key alone: what follows is no head.
    WITH owned AS MATERIALIZED (
        SELECT lane.lane
        FROM unnest(%(lanes)s::smallint[], %(epochs)s::bigint[]) AS mine (lane, epoch)
        JOIN @schema@.queue_message_lane AS lane ON (lane.lane, lane.epoch) = (mine.lane, mine.epoch)
        WHERE lane.owner = %(relay_id)s AND lane.lease_expires_at > coalesce(%(now)s, now())
        ORDER BY lane.lane
        FOR SHARE OF lane
    )
    SELECT found.xid, found.seq, found.size
    FROM unnest(%(xids)s::text::xid8[], %(seqs)s::text::bigint[]) AS head (xid, seq)
    -- Its own FOR UPDATE keeps this a look-up for each head: as a join, fresh statistics over a table full of what vacuum may not
    -- remove made it a walk over the whole primary key (9,700 pages instead of 2,100, and growing).
    CROSS JOIN LATERAL (
        SELECT message.xid, message.seq, @size@
        FROM @schema@.queue_message AS message
        WHERE (message.xid, message.seq) = (head.xid, head.seq)
            AND message.lane IN (SELECT lane FROM owned) AND message.lock_expires_at IS NULL
            AND (message.available_at IS NULL OR message.available_at <= coalesce(%(now)s, now()) AND message.locked_by IS NULL)
        FOR UPDATE OF message SKIP LOCKED
    ) AS found
