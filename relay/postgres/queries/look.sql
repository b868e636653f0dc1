-- Which sources may have something due, asked by a relay that rests: one statement in place of one for each source.
SELECT
    EXISTS (SELECT FROM unnest(%(pending)s::text::xid8[]) AS late (xid) WHERE pg_visible_in_snapshot(late.xid, pg_current_snapshot()))
    OR (
        SELECT true FROM @schema@.queue_message
        WHERE (xid, seq) > (%(head_xid)s::text::xid8, %(head_seq)s)
            AND lock_expires_at IS NULL AND available_at IS NULL AND ordering_key IS NULL AND exchange <> ALL(%(except)s::text[])
        ORDER BY xid, seq
        LIMIT 1
    ) IS NOT NULL AS fresh,
    EXISTS (SELECT FROM unnest(%(lanes_pending)s::text::xid8[]) AS late (xid) WHERE pg_visible_in_snapshot(late.xid, pg_current_snapshot()))
    OR (
        SELECT true FROM @schema@.queue_message
        WHERE (xid, seq) > (%(lanes_head_xid)s::text::xid8, %(lanes_head_seq)s)
            AND ordering_key IS NOT NULL AND lane + 0 = ANY(%(lanes)s::smallint[]) AND lock_expires_at IS NULL AND available_at IS NULL
        ORDER BY xid, seq, lane
        LIMIT 1
    ) IS NOT NULL AS ordered,
    (
        SELECT true FROM @schema@.queue_message
        WHERE available_at <= coalesce(%(now)s, now()) AND lock_expires_at IS NULL AND exchange <> ALL(%(held)s::text[])
        ORDER BY available_at
        LIMIT 1
    ) IS NOT NULL AS waiting
