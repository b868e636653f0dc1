-- Begin again: no message, nothing of former ones, no relay. Settings, schedules, contracts and what operators hold are the application's.
WITH queued AS (DELETE FROM @schema@.queue_message), keyed AS (DELETE FROM @schema@.queue_message_keyed_row),
    dedup AS (DELETE FROM @schema@.queue_message_dedup), coalesced AS (DELETE FROM @schema@.queue_message_coalesced),
    archived AS (DELETE FROM @schema@.queue_message_archive), acknowledged AS (DELETE FROM @schema@.queue_message_dead_ack),
    received AS (DELETE FROM @schema@.queue_message_received)
DELETE FROM @schema@.queue_message_relay
