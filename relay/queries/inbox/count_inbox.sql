-- Messages that wait, counted up to a limit.
SELECT count(*) FROM (SELECT id FROM @schema@.queue_message LIMIT %(most)s) AS waiting
