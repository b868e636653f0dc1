-- A relay has claimed below what it last reported: the sweep of its locks must start lower.
UPDATE @schema@.queue_message_relay
SET low_xid = %(low_xid)s::text::xid8, low_seq = %(low_seq)s
WHERE id = %(relay_id)s AND (low_xid, low_seq) > (%(low_xid)s::text::xid8, %(low_seq)s)
