-- The last transaction of this cluster that archived a message with one of these results within these times.
SELECT archived_xid::text::bigint FROM @schema@.queue_message_archive
WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at <= %(last)s
    AND archived_xid < pg_snapshot_xmax(pg_current_snapshot())
ORDER BY archived_xid DESC LIMIT 1
