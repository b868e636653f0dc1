-- What a dead message held, and how many bytes that takes here; no content if it takes more than `most`. For roles that may read the table.
SELECT CASE WHEN size <= %(most)s THEN content END AS content, CASE WHEN size <= %(most)s THEN options END AS options,
    CASE WHEN size <= %(most)s THEN body END AS body, size
FROM (
    SELECT content, options, body, octet_length(content)::bigint + octet_length(options) + coalesce(octet_length(body), 0) AS size
    FROM (
        SELECT content::text AS content, options::text AS options, encode(body, 'base64') AS body
        FROM @schema@.queue_message_dead
        WHERE id = %(id)s AND xid = %(xid)s::text::xid8 AND seq = %(seq)s OFFSET 0
    ) AS held OFFSET 0
) AS measured
