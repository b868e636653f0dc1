SELECT id::text, result, error_code, error_detail, handled_by, attempts, extract(epoch FROM archived_at)::float8 AS archived_at
FROM queue_message_archive ORDER BY archived_at, xid, seq
