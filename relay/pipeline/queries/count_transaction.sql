-- How many rows one transaction has in a partition.
SELECT count(*) FROM @schema@.queue_message_archive
WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at <= %(last)s AND archived_xid = %(xid)s::text::xid8
