-- Rows of the transactions from low to below high; null high for all from low on.
SELECT count(*) FROM @schema@.queue_message_archive
WHERE archived_xid >= %(low)s::text::xid8 AND (%(high)s::text IS NULL OR archived_xid < %(high)s::text::xid8)
