-- What a comparison of a partition found: verified, or kept and why.
INSERT INTO @schema@.queue_message_export (partition, rows, checksum, exported_xid, verified_at, compared_at, difference, lake)
VALUES (%(partition)s, %(rows)s, %(checksum)s, %(below)s::text::xid8, CASE WHEN %(verified)s THEN now() END, now(), %(difference)s, %(lake)s)
ON CONFLICT (partition) DO UPDATE SET rows = excluded.rows, checksum = excluded.checksum, exported_xid = excluded.exported_xid,
    verified_at = excluded.verified_at, compared_at = excluded.compared_at, difference = excluded.difference, lake = excluded.lake
