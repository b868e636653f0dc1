-- Change a setting; what held before.
SELECT @schema@.queue_message_config_set(%(name)s, %(value)s) AS previous
