-- Take a message and a mark, take both back, and commit; a lock is waited for no longer than by a write, behind a pooler, too.
SELECT @schema@.queue_message_try() FROM set_config('lock_timeout', '1s', true)
