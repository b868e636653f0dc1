-- How many rows of each day the lake's log names, which never become fewer; what was wrong with a day and is mended is forgotten.
UPDATE @schema@.queue_message_export e
SET lake_rows = CASE WHEN e.lake = %(lake)s THEN greatest(e.lake_rows, f.rows) ELSE e.lake_rows END, damage = f.damage
FROM unnest(%(partitions)s::text[], %(rows)s::bigint[], %(damage)s::text[]) AS f (partition, rows, damage)
WHERE e.partition = f.partition AND (e.damage IS DISTINCT FROM f.damage OR e.lake = %(lake)s AND e.lake_rows IS DISTINCT FROM greatest(e.lake_rows, f.rows))
