-- A relay tells its lowest head.
UPDATE queue_message_relay SET heartbeat_at = now(), head_xid = %(head_xid)s::text::xid8, head_seq = %(head_seq)s WHERE id = %(relay_id)s
