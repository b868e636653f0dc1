-- What the rows of check_page lack, by the messages' ids. Archived messages have an archived_at, so the archive is not read.
SELECT xid::text AS xid, seq, routing_key, CASE WHEN isfinite(created_at) THEN created_at END AS created_at,
    CASE WHEN isfinite(expires_at) THEN expires_at END AS expires_at, error_detail AS last_error
FROM @schema@.queue_message_state
WHERE id = ANY (%(ids)s::uuid[]) AND archived_at IS NULL AND state <> 'keyed'
