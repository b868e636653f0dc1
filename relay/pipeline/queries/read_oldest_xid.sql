-- The lowest xid or archived_xid of a partition's rows; no row if the partition is empty.
SELECT least(xid, archived_xid)::text FROM @schema@.queue_message_archive
WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at <= %(last)s
ORDER BY least(xid, archived_xid) LIMIT 1
