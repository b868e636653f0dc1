-- Every archived row with every column, times as microseconds since 1970.
SELECT xid::text::bigint AS xid, seq, id::text AS id, exchange, routing_key, content::text AS content, body, options::text AS options,
    ordering_key, (extract(epoch FROM available_at) * 1000000)::bigint AS available_at,
    (extract(epoch FROM expires_at) * 1000000)::bigint AS expires_at, (extract(epoch FROM created_at) * 1000000)::bigint AS created_at,
    attempts, replay_of::text AS replay_of, result, error_code, error_detail, handled_by,
    (extract(epoch FROM claimed_at) * 1000000)::bigint AS claimed_at, (extract(epoch FROM published_at) * 1000000)::bigint AS published_at,
    (extract(epoch FROM confirmed_at) * 1000000)::bigint AS confirmed_at, (extract(epoch FROM archived_at) * 1000000)::bigint AS archived_at,
    archived_xid::text::bigint AS archived_xid
FROM queue_message_archive ORDER BY archived_xid, xid, seq
