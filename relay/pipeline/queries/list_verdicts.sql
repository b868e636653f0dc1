-- The result of comparing each partition of the archive with the lake, dropped ones included. A day is compared only after it is
-- over. A comparison with another lake says nothing of this one, and a day that was dropped is never compared again.
SELECT p.name, p.day,
    CASE WHEN coalesce(e.damage, e.difference) IS NOT NULL THEN 'differs' WHEN e.verified_at IS NOT NULL AND e.lake = l.lake THEN 'verified'
         WHEN p.day >= (coalesce(%(now)s, now()) AT TIME ZONE 'UTC')::date THEN 'open' ELSE 'unverified' END,
    e.rows, e.verified_at, coalesce(e.damage, e.difference)
FROM (
    SELECT name, CASE WHEN name ~ '_[0-9]{8}$' THEN to_date(right(name, 8), 'YYYYMMDD') END AS day
    FROM (
        SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = format('%%I.queue_message_archive_daily', %(schema)s::text)::regclass
        UNION SELECT e.partition FROM @schema@.queue_message_export e JOIN @schema@.queue_message_lake l ON e.lake = l.lake OR e.damage IS NOT NULL
        UNION SELECT 'queue_message_dead'
    ) AS names (name)
) AS p LEFT JOIN @schema@.queue_message_export e ON e.partition = p.name AND (e.lake IS NOT NULL OR e.damage IS NOT NULL)
CROSS JOIN @schema@.queue_message_lake l
WHERE p.day IS NULL OR p.day <= (coalesce(%(now)s, now()) AT TIME ZONE 'UTC')::date
ORDER BY p.name
