message.xid, message.seq, message.id, message.exchange, message.routing_key,
        CASE WHEN chosen.size <= %(large)s THEN (
            SELECT CASE WHEN octet_length(printed) <= 2 * chosen.size + 4096 THEN printed END
            FROM (SELECT coalesce(message.body, convert_to(message.content::text, 'UTF8')) AS printed OFFSET 0) AS once
        ) END AS payload,
        message.body IS NOT NULL AS is_binary,
        CASE WHEN message.options <> '{}' THEN CASE WHEN chosen.size <= %(large)s THEN (
            SELECT CASE WHEN octet_length(printed) <= 2 * chosen.size + 4096 THEN printed ELSE '' END
            FROM (SELECT convert_to(message.options::text, 'UTF8') AS printed OFFSET 0) AS once
        ) ELSE '' END END AS options,
        message.ordering_key, message.replay_of, @attempts@, message.expires_at, message.lane
