    -- Messages that a scan has found, by their positions, if they are still claimable. Of an ordering key that is the message that was its
    -- head when it was found. The rows of the heads' lanes are locked FOR SHARE, once each and in order. Their epochs are checked on the
    -- locked versions, because a plain EXISTS let two owners in. Messages that another session has locked are skipped: the next round of
    -- the scan finds them again.
    WITH owned AS MATERIALIZED (
        SELECT lane.lane
        FROM unnest(%(lanes)s::smallint[], %(epochs)s::bigint[]) AS mine (lane, epoch)
        JOIN @schema@.queue_message_lane AS lane ON (lane.lane, lane.epoch) = (mine.lane, mine.epoch)
        WHERE lane.owner = %(relay_id)s AND lane.lease_expires_at > coalesce(%(now)s, now())
        ORDER BY lane.lane
        FOR SHARE OF lane
    )
    -- The oldest message goes in any case. The room that a limit on bytes leaves is shared between the exchanges: cut by position alone,
    -- the oldest large messages would take the room of all others.
    SELECT one.xid, one.seq, one.size, CASE WHEN row_number() OVER (ORDER BY one.xid, one.seq) > 1
        THEN sum(one.size) OVER (PARTITION BY one.exchange ORDER BY found.place) ELSE 0 END AS bytes_of_exchange
    FROM unnest(%(xids)s::text::xid8[], %(seqs)s::text::bigint[]) WITH ORDINALITY AS found (xid, seq, place)
    -- Its own FOR UPDATE keeps this a look-up for each position. Where statistics were fresh and the table full of rows that vacuum may not
    -- remove, a join became a walk over the whole primary key: 9,700 pages instead of 2,100, and growing.
    CROSS JOIN LATERAL (
        SELECT message.xid, message.seq, message.exchange, @size@
        FROM @schema@.queue_message AS message
        WHERE (message.xid, message.seq) = (found.xid, found.seq)
            AND message.lock_expires_at IS NULL AND (message.available_at IS NULL OR message.available_at <= coalesce(%(now)s, now()))
            AND (message.locked_by IS NOT NULL) = %(suspects)s
            AND (message.ordering_key IS NULL OR message.lane IN (SELECT lane FROM owned) AND NOT EXISTS (
                SELECT FROM @schema@.queue_message_key_hold AS hold WHERE hold.ordering_key = message.ordering_key OFFSET 0))
        FOR UPDATE OF message SKIP LOCKED
    ) AS one
    LIMIT %(limit)s
