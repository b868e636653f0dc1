-- Begin again without messages, traces of former ones, and relays. Settings, schedules, contracts and holds stay: the application owns them.
WITH queued AS (DELETE FROM @schema@.queue_message), keyed AS (DELETE FROM @schema@.queue_message_keyed_row),
    dedup AS (DELETE FROM @schema@.queue_message_dedup), coalesced AS (DELETE FROM @schema@.queue_message_coalesced),
    archived AS (DELETE FROM @schema@.queue_message_archive), acknowledged AS (DELETE FROM @schema@.queue_message_dead_ack),
    received AS (DELETE FROM @schema@.queue_message_received)
DELETE FROM @schema@.queue_message_relay
