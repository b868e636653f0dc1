-- The last transaction that archived something of these results within these times.
SELECT archived_xid::text::bigint FROM @schema@.queue_message_archive
WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at < %(until)s
ORDER BY archived_xid DESC LIMIT 1
