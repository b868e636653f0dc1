-- Seconds since the oldest row that is not exported was archived, 0 if there is none. Rows of one time are neighbours in the index, so the
-- first thousand are enough. Rows from the next transaction's id on came with another cluster's dump and were exported when the lake began.
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(archived_at)), 0)::float8
FROM (
    SELECT archived_at FROM @schema@.queue_message_archive
    WHERE archived_xid >= %(end)s::text::xid8 AND archived_xid < pg_snapshot_xmax(pg_current_snapshot())
    ORDER BY archived_xid LIMIT 1000
) AS waiting
