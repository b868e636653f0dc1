-- What retention deletes and drops; returns how many days of the archive are gone.
SELECT count(*) FROM @schema@.queue_message_retain() WHERE action = 'dropped'
