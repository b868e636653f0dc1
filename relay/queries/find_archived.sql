-- Which of these messages a settle of ours has archived although its answer was lost.
SELECT archive.id::text
FROM @schema@.queue_message_archive AS archive
WHERE archive.id = ANY(%(ids)s::uuid[]) AND archive.handled_by = %(handled_by)s AND archive.claimed_at = to_timestamp(%(claimed_at)s)
