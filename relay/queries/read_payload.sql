-- A payload that did not travel with its claim, while the lock is ours; of one that is too large no more than shows that it is.
SELECT substring(coalesce(body, convert_to(content::text, 'UTF8')) FROM 1 FOR %(most)s::int)
FROM @schema@.queue_message
WHERE xid = ANY(ARRAY[%(xid)s::text::xid8]) AND seq = %(seq)s AND lock_token = %(token)s::uuid
