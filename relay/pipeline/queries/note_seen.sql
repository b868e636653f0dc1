-- Record that the lake itself was checked.
SELECT @schema@.queue_message_export_seen(%(lake)s, %(epoch)s, %(version)s, %(began)s, %(partitions)s, %(rows)s::bigint[],
    %(damage)s::text[])
