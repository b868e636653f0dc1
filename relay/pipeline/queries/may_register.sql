-- Whether an export is registered, and whether this login may register one.
SELECT @schema@.queue_message_setting_value('export_registered')::boolean,
       has_function_privilege(format('%%I.queue_message_config_set(text, text)', %(schema)s::text), 'EXECUTE')
