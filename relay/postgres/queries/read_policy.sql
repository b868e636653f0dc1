-- The policy that the database carries out, what operators hold or limit, and how many relays share a limit: those heard of lately.
SELECT 'setting' AS kind, name, value FROM @schema@.queue_message_setting
UNION ALL
SELECT 'paused', exchange, '' FROM @schema@.queue_message_pause
UNION ALL
SELECT 'limited', exchange, per_second::text FROM @schema@.queue_message_limit
UNION ALL
SELECT 'relays', '', count(*)::text FROM @schema@.queue_message_relay_state AS relay
WHERE relay.silent_for < make_interval(secs => 6) AND NOT relay.state ? 'left'
