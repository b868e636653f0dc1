    -- Messages that came back from an expired lock (locked_by still names who held it), by queue_message_available_at_idx. After its second
    -- lost lock a message is claimed alone, so that one which kills relays takes no neighbour with it; after the first, when it was most
    -- likely a bystander, in small groups. Of an ordering key only the head, and only under the rule of due_ordered: the rows of their
    -- lanes are locked FOR SHARE and checked on the locked versions. Without such a message no lane is touched.
    WITH back AS MATERIALIZED (
        SELECT xid, seq, lane, ordering_key IS NOT NULL AS ordered, @size@, attempts <= %(trusted)s AS once
        FROM @schema@.queue_message AS message
        WHERE available_at <= coalesce(%(now)s, now())
            AND lock_expires_at IS NULL AND locked_by IS NOT NULL
            AND exchange <> ALL(%(except)s::text[]) AND (%(only)s::text[] IS NULL OR exchange = ANY(%(only)s::text[]))
            AND (ordering_key IS NULL OR (
                lane + 0 = ANY(%(lanes)s::smallint[])
                AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold AS hold WHERE hold.ordering_key = message.ordering_key)
                AND NOT EXISTS (SELECT FROM @schema@.queue_message AS earlier
                    WHERE earlier.ordering_key = message.ordering_key AND (earlier.xid, earlier.seq) < (message.xid, message.seq))))
        ORDER BY available_at
        LIMIT %(limit)s
        FOR UPDATE OF message SKIP LOCKED
    ), owned AS MATERIALIZED (
        SELECT lane.lane
        FROM unnest(%(lanes)s::smallint[], %(epochs)s::bigint[]) AS mine (lane, epoch)
        JOIN @schema@.queue_message_lane AS lane ON (lane.lane, lane.epoch) = (mine.lane, mine.epoch)
        WHERE lane.owner = %(relay_id)s AND lane.lease_expires_at > coalesce(%(now)s, now())
            AND lane.lane IN (SELECT lane FROM back WHERE ordered)
        ORDER BY lane.lane
        FOR SHARE OF lane
    )
    SELECT xid, seq, size
    FROM (
        SELECT xid, seq, size, once, row_number() OVER (ORDER BY once DESC) AS place
        FROM back
        WHERE NOT ordered OR lane IN (SELECT lane FROM owned)
    ) AS ranked
    WHERE once OR place = 1
