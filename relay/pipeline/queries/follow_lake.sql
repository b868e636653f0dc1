-- From now on this lake follows this server.
SELECT @schema@.queue_message_export_follow(%(lake)s)
