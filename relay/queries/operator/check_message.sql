-- Where a message is in the queue, and what decides whether a relay finds it: its row of check_page. A message that is archived or waits
-- under a key of its own has no place in claim order, and so no row. Below the lowest number there is no other; this is not worth an
-- error.
SELECT page.xid::text AS xid, page.seq, page.id::text AS id, page.exchange, page.ordering_key, page.attempts, page.available_at, page.lock_ends_at,
    page.locked_by, page.over, page.abandoned, page.foreign_id, page.lane, page.key_lane, page.lane_known, page.indexed, page.head, page.held,
    page.paused, page.limited, page.session, page.clock
FROM @schema@.queue_message_state AS message
CROSS JOIN LATERAL @schema@.queue_message_check_page(message.xid, greatest(message.seq, -9223372036854775807) - 1, 1) AS page
WHERE message.id = %(id)s AND message.archived_at IS NULL AND message.state <> 'keyed' AND page.id = message.id
