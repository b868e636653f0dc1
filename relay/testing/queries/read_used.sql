-- Whether anybody has used this queue: messages, waiting or settled, or a relay.
SELECT EXISTS (SELECT FROM @schema@.queue_message) OR EXISTS (SELECT FROM @schema@.queue_message_archive)
    OR EXISTS (SELECT FROM @schema@.queue_message_relay) OR EXISTS (SELECT FROM @schema@.queue_message_keyed_row)
