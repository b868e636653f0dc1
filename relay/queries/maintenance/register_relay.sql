-- A relay comes to life; its id is what locked_by will hold, and by its start it knows its row again.
INSERT INTO @schema@.queue_message_relay (name, version, host, pid)
VALUES (%(name)s, %(version)s, %(host)s, %(pid)s)
RETURNING id, started_at::text
