-- The policy that the database carries out, what operators hold or limit, and how many relays share a limit (those heard of lately). Also
-- in how many seconds the next tick of a schedule is, a day at the most, and which message contracts there are. The latter is a text that
-- changes whenever a contract does, and is empty without contracts.
SELECT 'setting' AS kind, name, value FROM @schema@.queue_message_setting
UNION ALL
SELECT 'paused', exchange, '' FROM @schema@.queue_message_pause
UNION ALL
SELECT 'limited', exchange, per_second::text FROM @schema@.queue_message_limit
UNION ALL
SELECT 'tick', '', extract(epoch FROM least(greatest(min(next_at), 'epoch'), now() + interval '1 day') - now())::text
FROM @schema@.queue_message_schedule HAVING min(next_at) IS NOT NULL
UNION ALL
SELECT 'relays', '', count(*)::text FROM @schema@.queue_message_relay_state AS relay
WHERE relay.silent_for < make_interval(secs => 6) AND relay.silent_for > make_interval(secs => -6) AND NOT relay.state ? 'left'
UNION ALL
SELECT 'contracts', '', coalesce(md5(string_agg(concat_ws(' ', version, xmin, routing_key, exchange), ',' ORDER BY exchange, routing_key, version)), '')
FROM @schema@.queue_message_contract
