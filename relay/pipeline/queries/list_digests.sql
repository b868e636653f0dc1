-- The rows of some buckets with their digests; which rows is said in sum_rows.
SELECT xid::text::bigint, seq, @digest@
FROM @schema@.queue_message_archive
WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at <= %(last)s
    AND (archived_xid < %(below)s::text::xid8 OR archived_xid >= pg_snapshot_xmax(pg_current_snapshot()))
    AND (seq & %(mask)s)::integer = ANY(%(buckets)s::integer[])
