-- As plan_batch, for one partition. Counting by transaction first leaves fewer rows to number.
WITH range AS (
    SELECT archived_xid FROM @schema@.queue_message_archive
    WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at <= %(last)s
        AND archived_xid >= %(low)s::text::xid8 AND archived_xid < %(high)s::text::xid8
    ORDER BY archived_xid LIMIT %(most)s + 1
), transactions AS (
    SELECT xid, rows, (sum(rows) OVER (ORDER BY xid))::bigint AS upto
    FROM (SELECT archived_xid::text::bigint AS xid, count(*) AS rows FROM range GROUP BY archived_xid) AS counted
), marks AS (
    SELECT xid FROM transactions, generate_series((upto - rows + %(step)s - 1) / %(step)s, (upto - 1) / %(step)s)
)
SELECT coalesce(max(upto), 0), coalesce(max(upto - rows) FILTER (WHERE upto = (SELECT max(upto) FROM transactions)), 0),
    (SELECT coalesce(array_agg(xid ORDER BY xid), '{}') FROM marks)
FROM transactions
