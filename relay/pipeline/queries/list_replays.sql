-- The ids of replays of these messages.
SELECT DISTINCT id::text FROM @schema@.queue_message_archive WHERE replay_of = ANY(%(origins)s::text[]::uuid[])
