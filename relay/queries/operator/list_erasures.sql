-- Who erased messages with an id, or the one at a place, and when.
SELECT became ->> 'place' AS place, acted_at AS erased_at, acted_by AS erased_by FROM @schema@.queue_message_audit
WHERE action = 'erase' AND subject = %(id)s::text
    AND (%(xid)s::text IS NULL OR became ->> 'place' = format('%%s/%%s', %(xid)s::text, %(seq)s::bigint))
ORDER BY acted_at LIMIT %(most)s
