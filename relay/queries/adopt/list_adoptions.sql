-- Tables of other outboxes and their phases.
SELECT a.source, a.kept, a.layout, a.options, a."by", a.phase, a.changed_at, a.switched_at::text AS switched_at
FROM @schema@.queue_message_adoption AS a
ORDER BY a.source
