-- Delete new numbers that exist already, so that they are not written again. An INSERT with this condition reads its own new rows again for each row,
-- if VACUUM has seen the table empty: 10 s for 30,000 windows.
DELETE FROM pg_temp.queue_message_stats_staged_@grain@ AS new
USING @schema@.queue_message_stats_@grain@ AS kept
WHERE (kept.start, kept.exchange, kept.routing_key) = (new.start, new.exchange, new.routing_key) AND kept.* = new.*
