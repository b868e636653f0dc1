-- Change a setting; returns the previous value.
SELECT @schema@.queue_message_config_set(%(name)s, %(value)s) AS previous
