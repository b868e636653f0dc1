-- Replay a page of what a filter selects, or with dry_run only find it; the next page begins behind the last row. A refused message says
-- why, and the others are enqueued.
SELECT id, replayed_as, archived_xid::text, xid::text, seq, refused
FROM @schema@.queue_message_replay_many(%(archived_from)s, %(archived_to)s, %(exchange)s, %(routing_key)s, %(result)s, %(error_code)s, %(again)s,
    %(archived_xid)s::text::xid8, %(xid)s::text::xid8, %(seq)s, %(most)s, %(dry_run)s, %(same_id)s,
    job => %(job)s::text) AS replayed
ORDER BY replayed.archived_xid, replayed.xid, seq
