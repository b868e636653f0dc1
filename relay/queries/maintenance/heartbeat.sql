-- Notes that the relay lives, what it reports of itself, and where it is: the lowest message that it may have in flight, and the lowest and
-- the highest head of its streams. By these positions views find locked messages and the oldest one; no claim goes by them. Changes nothing
-- if the relay's row is gone, or is another relay's: a standby that took over gives out again the ids that its primary gave out last.
UPDATE @schema@.queue_message_relay
SET heartbeat_at = coalesce(%(now)s, now()), state = %(state)s,
    low_xid = %(low_xid)s::text::xid8, low_seq = %(low_seq)s, head_xid = %(head_xid)s::text::xid8, head_seq = %(head_seq)s,
    top_xid = %(top_xid)s::text::xid8, top_seq = %(top_seq)s
WHERE id = %(relay_id)s AND started_at = %(started_at)s::timestamptz
RETURNING id
