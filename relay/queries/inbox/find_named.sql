-- Where the named messages are: in the queue, and in what state; else in the archive, and with which result.
SELECT named.id, message.id IS NOT NULL, relay.name, message.lock_expires_at::text, message.available_at::text,
    message.ordering_key IS NOT NULL, archive.result, archive.error_code
FROM unnest(%(ids)s::text[]) AS named (id)
LEFT JOIN @schema@.queue_message AS message ON message.id = named.id::uuid
LEFT JOIN @schema@.queue_message_relay AS relay ON relay.id = message.locked_by
LEFT JOIN LATERAL (
    SELECT result, error_code FROM @schema@.queue_message_archive AS archive
    WHERE archive.id = named.id::uuid
    ORDER BY claimed_at DESC NULLS LAST
    LIMIT 1
) AS archive ON message.id IS NULL
