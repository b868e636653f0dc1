SELECT id::text FROM queue_message WHERE locked_by = %(relay_id)s AND lock_expires_at IS NOT NULL
