-- Archive the head of an ordering key as discarded and let its successor go.
SELECT @schema@.queue_message_key_skip(%(key)s, expected => %(expected)s) AS id
