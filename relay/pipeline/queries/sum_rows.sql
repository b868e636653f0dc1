-- Rows and checksum by bucket of what was archived below a transaction, or came with another cluster's dump, all of which the export took
-- when it began; the row's text is composed of the catalog's columns.
SELECT (seq & %(mask)s)::integer, count(*), sum(@digest@)
FROM @schema@.queue_message_archive
WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at <= %(last)s
    AND (archived_xid < %(below)s::text::xid8 OR archived_xid >= pg_snapshot_xmax(pg_current_snapshot()))
GROUP BY 1
