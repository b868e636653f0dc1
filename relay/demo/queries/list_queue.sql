SELECT id::text, state, error_detail FROM queue_message_state WHERE archived_at IS NULL ORDER BY xid, seq
