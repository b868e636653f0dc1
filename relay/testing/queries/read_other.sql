-- The name of a living relay that no test has started; null if there is none.
SELECT min(name) FROM @schema@.queue_message_relay_state WHERE alive AND name <> 'relay.testing'
