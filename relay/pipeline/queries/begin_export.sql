-- Remember the epoch of a commit that is about to be made, if PostgreSQL's current epoch is still the given one.
SELECT @schema@.queue_message_export_begin(%(lake)s, %(epoch)s, %(next)s)
