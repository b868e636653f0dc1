-- How many rows a range of a partition has, their checksum, and the id of the next transaction as this statement sees it. Rows with this id
-- or a later one came with another cluster's dump; the export took all of them when it began. With foreign, only these rows count.
SELECT count(*), coalesce(sum(@digest@), 0), pg_snapshot_xmax(pg_current_snapshot())::text::bigint
FROM @schema@.queue_message_archive
WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at <= %(last)s
    AND archived_xid >= greatest(%(low)s::text::xid8, CASE WHEN %(foreign)s THEN pg_snapshot_xmax(pg_current_snapshot()) END)
    AND (%(high)s::text IS NULL OR archived_xid < %(high)s::text::xid8) AND (seq %% %(parts)s + %(parts)s) %% %(parts)s = %(part)s
