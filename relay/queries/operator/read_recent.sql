-- Results of the messages settled last.
SELECT result, error_code, messages, last_minute, oldest_seconds FROM @schema@.queue_message_recent ORDER BY messages DESC, result, error_code
