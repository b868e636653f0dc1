-- What a comparison of a partition found: verified, or why it is kept. Some dead messages may be put aside while the others are verified.
INSERT INTO @schema@.queue_message_export (partition, rows, checksum, exported_xid, verified_at, compared_at, difference, lake, form, aside)
VALUES (%(partition)s, %(rows)s, %(checksum)s, %(below)s::text::xid8, CASE WHEN %(verified)s THEN now() END, now(), %(difference)s, %(lake)s,
    %(form)s, %(aside)s::jsonb)
ON CONFLICT (partition) DO UPDATE SET rows = excluded.rows, checksum = excluded.checksum, exported_xid = excluded.exported_xid,
    verified_at = CASE WHEN excluded.difference IS NULL THEN excluded.verified_at
                       WHEN excluded.verified_at IS NOT NULL THEN coalesce(queue_message_export.verified_at, now()) END,
    compared_at = excluded.compared_at, difference = excluded.difference, lake = excluded.lake, form = excluded.form, aside = excluded.aside
