-- Write a message and a mark, take both back, and commit. The wait for a lock lasts no longer than that of a write, behind a pooler too.
SELECT @schema@.queue_message_try() FROM set_config('lock_timeout', '1s', true)
