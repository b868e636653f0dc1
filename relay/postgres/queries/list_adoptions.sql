-- Tables of other outboxes and their phases; the name in its parts, as a program needs it.
SELECT a.source, a.kept, a.layout, a.options, a."by", a.phase, a.changed_at, a.switched_at::text AS switched_at
FROM @schema@.queue_message_adoption AS a
ORDER BY a.source
