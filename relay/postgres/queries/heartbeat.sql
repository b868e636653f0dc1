-- The relay lives, what it has to say of itself, and where it claims next: by that position views find the oldest message, and no claim
-- goes by it. Nothing if the relay's row is gone.
UPDATE @schema@.queue_message_relay
SET heartbeat_at = coalesce(%(now)s, now()), state = %(state)s,
    low_xid = %(head_xid)s::text::xid8, low_seq = %(head_seq)s, head_xid = %(head_xid)s::text::xid8, head_seq = %(head_seq)s,
    top_xid = %(head_xid)s::text::xid8, top_seq = %(head_seq)s
WHERE id = %(relay_id)s
RETURNING id
