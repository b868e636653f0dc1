-- What is wrong with the files of days that no verification has compared yet.
INSERT INTO @schema@.queue_message_export AS e (partition, rows, lake, damage)
SELECT f.partition, 0, %(lake)s, f.damage FROM unnest(%(partitions)s::text[], %(damage)s::text[]) AS f (partition, damage)
ON CONFLICT (partition) DO UPDATE SET damage = excluded.damage WHERE e.damage IS DISTINCT FROM excluded.damage
