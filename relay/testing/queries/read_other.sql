-- A living relay that is no test's; null for none.
SELECT min(name) FROM @schema@.queue_message_relay_state WHERE alive AND name <> 'relay.testing'
