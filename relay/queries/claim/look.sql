-- Which sources may have something to claim, asked by a relay that rests: one statement in place of one for each source. Each look walks a
-- fixed number of messages and passes over transactions that are running. A look that this number cuts short counts as found: the source
-- then looks for itself.
SELECT
    EXISTS (SELECT FROM unnest(%(pending)s::text::xid8[]) AS late (xid) WHERE pg_visible_in_snapshot(late.xid, pg_current_snapshot()))
    OR (
        SELECT bool_or(fresh) OR count(*) = %(walk)s
        FROM (
            SELECT message.fresh
            FROM (
                WITH asked AS (
                    SELECT 1 AS place, %(head_xid)s::text::xid8 AS from_xid, %(head_seq)s::bigint AS from_seq,
                        pg_snapshot_xmax(pg_current_snapshot()) AS to_xid
                )
                @gaps@
            ) AS gap
            CROSS JOIN LATERAL (
                SELECT lock_expires_at IS NULL AND available_at IS NULL AND ordering_key IS NULL AS fresh
                FROM @schema@.queue_message
                WHERE (xid, seq) > (gap.from_xid, gap.from_seq) AND xid < gap.to_xid
                ORDER BY xid, seq
                LIMIT %(walk)s
            ) AS message
            LIMIT %(walk)s
        ) AS walked
    ) IS TRUE AS fresh,
    EXISTS (SELECT FROM unnest(%(lanes_pending)s::text::xid8[]) AS late (xid) WHERE pg_visible_in_snapshot(late.xid, pg_current_snapshot()))
    OR (
        SELECT bool_or(fresh) OR count(*) = %(walk)s
        FROM (
            SELECT message.fresh
            FROM (
                WITH asked AS (
                    SELECT 1 AS place, %(lanes_head_xid)s::text::xid8 AS from_xid, %(lanes_head_seq)s::bigint AS from_seq,
                        pg_snapshot_xmax(pg_current_snapshot()) AS to_xid
                )
                @gaps@
            ) AS gap
            CROSS JOIN LATERAL (
                SELECT lock_expires_at IS NULL AND available_at IS NULL AND lane = ANY(%(lanes)s::smallint[]) AS fresh
                FROM @schema@.queue_message
                WHERE (xid, seq) > (gap.from_xid, gap.from_seq) AND xid < gap.to_xid AND ordering_key IS NOT NULL
                ORDER BY xid, seq, lane
                LIMIT %(walk)s
            ) AS message
            LIMIT %(walk)s
        ) AS walked
    ) IS TRUE AS ordered,
    (
        SELECT bool_or(open) OR count(*) = %(walk)s
        FROM (
            SELECT lock_expires_at IS NULL AND exchange <> ALL(%(held)s::text[]) AS open
            FROM @schema@.queue_message
            WHERE available_at > %(after)s::text::timestamptz AND available_at <= coalesce(%(now)s, now())
            ORDER BY available_at
            LIMIT %(walk)s
        ) AS walked
    ) IS TRUE AS waiting
