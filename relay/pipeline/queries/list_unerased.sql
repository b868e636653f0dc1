-- The ids of messages with one of these ids, and of replays of these origins, whose contents were not erased. The named messages are not
-- listed as replays, and none is listed that has one of the keys.
SELECT id::text FROM @schema@.queue_message_archive
WHERE (id = ANY(%(ids)s::text[]::uuid[]) OR replay_of = ANY(%(origins)s::text[]::uuid[]) AND id <> ALL(%(named)s::text[]::uuid[]))
    AND options <> %(erased)s::text::jsonb AND (ordering_key = ANY(%(keys)s::text[])) IS NOT TRUE
