-- Where the next messages in claim order stand, and what decides whether a relay finds them.
SELECT xid::text AS xid, seq, id::text AS id, exchange, ordering_key, attempts, available_at, lock_ends_at, locked_by, over, abandoned, foreign_id,
    lane, key_lane, lane_known, indexed, head, held, paused, limited, session, clock
FROM @schema@.queue_message_check_page(%(after_xid)s::text::xid8, %(after_seq)s, %(most)s)
