-- What a dead message held; for roles that may read the table.
SELECT content::text AS content, options::text AS options, encode(body, 'base64') AS body
FROM @schema@.queue_message_dead
WHERE id = %(id)s AND xid = %(xid)s::text::xid8 AND seq = %(seq)s
