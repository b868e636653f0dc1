-- The lowest transaction id of a partition's rows, of either kind; no row where it has none.
SELECT least(xid, archived_xid)::text FROM @schema@.queue_message_archive
WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at <= %(last)s
ORDER BY least(xid, archived_xid) LIMIT 1
