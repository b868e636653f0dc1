-- The relay lives: how far its streams have come, what it has to say of itself, and how low it may hold locks. What a claim has lowered
-- since the last report stays for this time: the report may have been made before that claim was in hand. Nothing if its row is gone.
UPDATE @schema@.queue_message_relay
SET heartbeat_at = coalesce(%(now)s, now()), head_xid = %(head_xid)s::text::xid8, head_seq = %(head_seq)s,
    top_xid = %(top_xid)s::text::xid8, top_seq = %(top_seq)s, state = %(state)s,
    low_xid = CASE WHEN (low_xid, low_seq) < (%(told_xid)s::text::xid8, %(told_seq)s) THEN low_xid ELSE %(low_xid)s::text::xid8 END,
    low_seq = CASE WHEN (low_xid, low_seq) < (%(told_xid)s::text::xid8, %(told_seq)s) THEN low_seq ELSE %(low_seq)s END
WHERE id = %(relay_id)s
RETURNING low_xid::text::bigint, low_seq
