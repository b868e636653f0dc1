-- A piece of a payload that did not travel with its claim, while the lock is ours, how long all of it is, and the seconds that the server
-- needed: of a long content it prints all for each piece. With the first piece come the options, as much of them as shows that they are
-- too long.
SELECT substring(printed FROM %(start)s::int FOR %(length)s::int), octet_length(printed),
    extract(epoch FROM clock_timestamp() - statement_timestamp())::float8,
    CASE WHEN %(start)s = 1 AND options <> '{}' THEN substring(convert_to(options::text, 'UTF8') FOR %(longest)s) END
FROM (
    SELECT coalesce(body, convert_to(content::text, 'UTF8')) AS printed, options
    FROM @schema@.queue_message
    WHERE xid = ANY(ARRAY[%(xid)s::text::xid8]) AND seq = %(seq)s AND lock_token = %(token)s::uuid
    OFFSET 0
) AS once
