    -- Messages as a test reads them, in the queue and under their keys. Content stays text, so that nothing is lost on its way.
    SELECT m.xid, m.seq, m.id, m.exchange, m.routing_key, CAST(m.content AS text) AS content, encode(m.body, 'base64') AS body,
        CAST(m.options AS text) AS options, m.ordering_key, m.available_at, m.expires_at, m.created_at, m.attempts, m.last_error,
        CAST(NULL AS text) AS bundle_key, CAST(NULL AS text) AS coalesce_key,
        CASE WHEN m.lock_expires_at IS NOT NULL THEN 'locked' WHEN m.available_at > now() THEN 'delayed' ELSE 'ready' END AS state
    FROM @schema@.queue_message AS m
    UNION ALL
    SELECT k.xid, k.seq, k.id, k.exchange, k.routing_key, CAST(CASE WHEN k.bundle_key IS NULL THEN k.content ELSE k.content -> 0 END AS text),
        encode(k.body, 'base64'), CAST(k.options AS text), k.ordering_key, k.available_at, k.expires_at, k.created_at, k.attempts, k.last_error,
        k.bundle_key, k.coalesce_key, 'keyed'
    FROM @schema@.queue_message_keyed_row AS k
