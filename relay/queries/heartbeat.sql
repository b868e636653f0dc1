-- The relay lives: how low it may hold locks, how far its streams have come, what it has to say of itself. False if its row is gone.
UPDATE @schema@.queue_message_relay
SET heartbeat_at = coalesce(%(now)s, now()), low_xid = %(low_xid)s::text::xid8, low_seq = %(low_seq)s,
    head_xid = %(head_xid)s::text::xid8, head_seq = %(head_seq)s, state = %(state)s
WHERE id = %(relay_id)s
RETURNING id
