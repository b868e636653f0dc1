-- Remember the epoch of a commit that is about to be made, if the last one is still what it was.
SELECT @schema@.queue_message_export_begin(%(lake)s, %(epoch)s, %(next)s)
