-- Whether there are rows with transaction ids of the future, which came with another cluster's dump.
SELECT EXISTS (SELECT FROM @schema@.queue_message_archive WHERE archived_xid >= pg_snapshot_xmax(pg_current_snapshot()))
