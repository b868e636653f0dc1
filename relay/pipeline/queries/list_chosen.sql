-- The messages with one of these ids and the replays of such messages; the options are null of a message that was not erased.
SELECT id::text, xid::text, seq, replay_of::text, CASE WHEN options = %(erased)s::text::jsonb THEN options::text END, result,
    error_code,
    CASE WHEN error_code = 'bundled' THEN error_detail END, ordering_key
FROM @schema@.queue_message_archive
WHERE id = ANY(%(ids)s::text[]::uuid[]) OR replay_of = ANY(%(ids)s::text[]::uuid[])
