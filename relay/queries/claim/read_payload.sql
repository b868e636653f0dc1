-- A piece of a payload, and of the options behind it, that did not come with their claim, while the lock is ours. Of the options only so
-- much is read as shows that they are too long. Also how long both are, and the seconds that the server needed: for each piece it prints
-- the whole of a long content. Payload and options are not joined as a whole, which might be more than the gigabyte that a value may have.
SELECT substring(printed FROM %(start)s::int FOR %(length)s::int) || coalesce(
        substring(behind FROM greatest(%(start)s::int - octet_length(printed), 1)
            FOR greatest(least(%(length)s::int, %(start)s::int + %(length)s::int - 1 - octet_length(printed)), 0)),
        ''),
    octet_length(printed), extract(epoch FROM clock_timestamp() - statement_timestamp())::float8, octet_length(behind)
FROM (
    SELECT coalesce(body, convert_to(content::text, 'UTF8')) AS printed,
        CASE WHEN options <> '{}' THEN substring(convert_to(options::text, 'UTF8') FOR %(longest)s) END AS behind
    FROM @schema@.queue_message
    WHERE xid = ANY(ARRAY[%(xid)s::text::xid8]) AND seq = %(seq)s AND lock_token = %(token)s::uuid
    OFFSET 0
) AS once
