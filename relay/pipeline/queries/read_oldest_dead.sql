-- When the oldest of some dead messages was archived, in microseconds since 1970: of those archived by transactions from mark to before
-- below, those of another cluster's dump, and those put aside. The end of the year 9999 if there is none, null for a time that no lake can
-- hold. The index on archived_xid finds these messages, not the one on times.
WITH found AS MATERIALIZED (
    SELECT archived_at FROM @schema@.queue_message_dead
    WHERE archived_xid >= %(mark)s::text::xid8 AND archived_xid < %(below)s::text::xid8
    UNION ALL
    SELECT archived_at FROM @schema@.queue_message_dead WHERE archived_xid >= pg_snapshot_xmax(pg_current_snapshot())
    UNION ALL
    SELECT archived_at FROM @schema@.queue_message_dead
    WHERE archived_xid = ANY(%(aside)s::text[]::xid8[])
)
SELECT CASE WHEN oldest IS NULL THEN 253402300799999999
            WHEN oldest BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00' THEN (extract(epoch FROM oldest) * 1000000)::bigint END
FROM (SELECT min(archived_at) AS oldest FROM found) AS first
