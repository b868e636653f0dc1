-- How many rows there are from start on (at most one more than most), and how many of them belong to transactions before the last.
-- Also the transaction of the first row of each step, in the order of the index on archived_xid.
SELECT count(*), count(*) FILTER (WHERE xid < last), coalesce(array_agg(xid ORDER BY number) FILTER (WHERE (number - 1) %% %(step)s = 0), '{}')
FROM (
    SELECT row_number() OVER () AS number, xid, max(xid) OVER () AS last
    FROM (
        SELECT archived_xid::text::bigint AS xid FROM @schema@.queue_message_archive
        WHERE archived_xid >= %(start)s::text::xid8 AND archived_xid < %(safe)s::text::xid8
        ORDER BY archived_xid LIMIT %(most)s + 1
    ) AS batch
) AS numbered
