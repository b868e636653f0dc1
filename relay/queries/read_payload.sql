-- A piece of a payload that did not travel with its claim, while the lock is ours, and the seconds that the server needed for it: of a long
-- content it prints all for each piece. Columns are computed in their order.
SELECT
    substring(coalesce(body, convert_to(content::text, 'UTF8')) FROM %(start)s::int FOR %(length)s::int),
    extract(epoch FROM clock_timestamp() - statement_timestamp())::float8
FROM @schema@.queue_message
WHERE xid = ANY(ARRAY[%(xid)s::text::xid8]) AND seq = %(seq)s AND lock_token = %(token)s::uuid
