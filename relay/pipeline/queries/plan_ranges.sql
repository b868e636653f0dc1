-- As plan_batch, of one partition.
SELECT count(*), count(*) FILTER (WHERE xid < last), coalesce(array_agg(xid ORDER BY number) FILTER (WHERE (number - 1) %% %(step)s = 0), '{}')
FROM (
    SELECT row_number() OVER () AS number, xid, max(xid) OVER () AS last
    FROM (
        SELECT archived_xid::text::bigint AS xid FROM @schema@.queue_message_archive
        WHERE result = ANY(%(results)s) AND archived_at >= %(since)s AND archived_at <= %(last)s
            AND archived_xid >= %(low)s::text::xid8 AND archived_xid < %(high)s::text::xid8
        ORDER BY archived_xid LIMIT %(most)s + 1
    ) AS range
) AS numbered
