-- The lake was looked at as it is.
SELECT @schema@.queue_message_export_seen(%(lake)s, %(epoch)s, %(version)s, %(began)s, %(partitions)s, %(rows)s::bigint[],
    %(damage)s::text[])
