-- How many rows a range has, its first and last transaction, and the one in the middle; sum_range says which rows these are.
SELECT count(*), min(xid), max(xid), percentile_disc(0.5) WITHIN GROUP (ORDER BY xid)
FROM (
    SELECT archived_xid::text::numeric AS xid
    FROM @schema@.queue_message_archive
    WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at <= %(last)s
        AND archived_xid >= greatest(%(low)s::text::xid8, CASE WHEN %(foreign)s THEN pg_snapshot_xmax(pg_current_snapshot()) END)
        AND (%(high)s::text IS NULL OR archived_xid < %(high)s::text::xid8) AND (seq %% %(parts)s + %(parts)s) %% %(parts)s = %(part)s
) AS found
