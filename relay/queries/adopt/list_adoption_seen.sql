-- Rows of one table that a mirror saw, counted by the address of their message, and by the reason if a row cannot be one.
SELECT s.exchange, s.routing_key, s.problem, count(*) AS rows
FROM @schema@.queue_message_adoption_seen AS s
WHERE s.source = %(source)s
GROUP BY s.exchange, s.routing_key, s.problem
ORDER BY count(*) DESC, s.exchange, s.routing_key, s.problem
LIMIT 100
