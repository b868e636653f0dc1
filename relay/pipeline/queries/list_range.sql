-- The rows of a range with their digests, and the transactions that archived them; sum_range says which rows these are.
SELECT xid::text, seq, @digest@, archived_xid::text
FROM @schema@.queue_message_archive
WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at <= %(last)s
    AND archived_xid >= greatest(%(low)s::text::xid8, CASE WHEN %(foreign)s THEN pg_snapshot_xmax(pg_current_snapshot()) END)
    AND (%(high)s::text IS NULL OR archived_xid < %(high)s::text::xid8) AND (seq %% %(parts)s + %(parts)s) %% %(parts)s = %(part)s
