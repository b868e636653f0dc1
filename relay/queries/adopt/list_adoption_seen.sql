-- What a mirror saw of one table, by where it would have gone and why it could not.
SELECT s.exchange, s.routing_key, s.problem, count(*) AS rows
FROM @schema@.queue_message_adoption_seen AS s
WHERE s.source = %(source)s
GROUP BY s.exchange, s.routing_key, s.problem
ORDER BY count(*) DESC, s.exchange, s.routing_key, s.problem
LIMIT 100
