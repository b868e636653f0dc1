SELECT xid::text::bigint AS xid, seq, id::text AS id FROM queue_message_replay_ledger WHERE job = %(job)s ORDER BY xid, seq
