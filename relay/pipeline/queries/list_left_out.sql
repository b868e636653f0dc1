-- Rows that no lake can hold, each with the reason, and their number; of transactions from low to below high, or from low on without high.
SELECT xid::text, seq, @fault@ AS code, count(*) OVER () AS rows
FROM @schema@.queue_message_archive
WHERE archived_xid >= %(low)s::text::xid8 AND (%(high)s::text IS NULL OR archived_xid < %(high)s::text::xid8) AND @fault@ IS NOT NULL
ORDER BY archived_xid, xid, seq LIMIT %(most)s
