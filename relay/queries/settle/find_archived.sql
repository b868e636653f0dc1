-- Which of these messages a settle of ours has archived although its answer was lost. A success that is gone without a trace was ours too,
-- because successes are not always archived. A relay that took the message over would have left it in the queue, or in the archive if
-- successes are archived.
SELECT archive.id::text
FROM @schema@.queue_message_archive AS archive
WHERE archive.id = ANY(%(ids)s::uuid[]) AND archive.handled_by = %(handled_by)s AND archive.claimed_at = to_timestamp(%(claimed_at)s)
UNION ALL
SELECT success.id::text
FROM unnest(%(successes)s::uuid[]) AS success (id)
WHERE NOT EXISTS (SELECT FROM @schema@.queue_message AS message WHERE message.id = ANY(ARRAY[success.id]))
    AND NOT EXISTS (SELECT FROM @schema@.queue_message_archive AS archive WHERE archive.id = ANY(ARRAY[success.id]))
