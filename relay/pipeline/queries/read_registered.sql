-- Whether the core waits with dropping days until an export has verified them.
SELECT @schema@.queue_message_setting_value('export_registered')::boolean
