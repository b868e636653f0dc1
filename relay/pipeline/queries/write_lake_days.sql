-- Write what each table of the lake has by day, if it has changed; delete days that the lake no longer has.
WITH here AS (
    SELECT * FROM unnest(%(name)s::text[], %(day)s::date[], %(files)s::bigint[], %(rows)s::bigint[], %(bytes)s::bigint[])
        AS day (name, day, files, rows, bytes)
), gone AS (
    DELETE FROM @schema@.queue_message_lake_day d WHERE NOT EXISTS (SELECT FROM here h WHERE (h.name, h.day) = (d.name, d.day))
)
INSERT INTO @schema@.queue_message_lake_day AS d (name, day, files, rows, bytes)
SELECT name, day, files, rows, bytes FROM here ORDER BY name, day
ON CONFLICT (name, day) DO UPDATE SET files = excluded.files, rows = excluded.rows, bytes = excluded.bytes
WHERE (d.files, d.rows, d.bytes) IS DISTINCT FROM (excluded.files, excluded.rows, excluded.bytes)
