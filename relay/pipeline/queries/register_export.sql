-- From now on the core drops only days that an export has verified.
SELECT @schema@.queue_message_config_set('export_registered', 'true')
