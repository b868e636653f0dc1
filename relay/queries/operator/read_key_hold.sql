-- Since when an ordering key is parked, by whom and why; no row if it is not parked.
SELECT ordering_key, held_at, held_by, reason FROM @schema@.queue_message_key_hold WHERE ordering_key = %(key)s
