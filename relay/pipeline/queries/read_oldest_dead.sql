-- When the oldest dead message was archived that an export has seen; the end of all times where there is none.
SELECT coalesce(min(archived_at), '9999-12-31 00:00:00+00') FROM @schema@.queue_message_dead WHERE archived_xid < %(below)s::text::xid8
    OR archived_xid >= pg_snapshot_xmax(pg_current_snapshot())
