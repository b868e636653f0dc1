-- How many rows the transactions from low to below high have; without high, all transactions from low on.
SELECT count(*) FROM @schema@.queue_message_archive
WHERE archived_xid >= %(low)s::text::xid8 AND (%(high)s::text IS NULL OR archived_xid < %(high)s::text::xid8)
