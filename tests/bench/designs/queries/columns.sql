message.id, message.exchange, message.routing_key,
        coalesce(message.body, convert_to(message.content::text, 'UTF8')) AS payload, message.body IS NOT NULL AS is_binary,
        CASE WHEN message.options <> '{}' THEN message.options::text END AS options,
        message.ordering_key, message.replay_of, message.attempts, message.expires_at, message.lane
