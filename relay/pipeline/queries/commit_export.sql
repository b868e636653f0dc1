-- Record what the lake has committed: its epoch, how far the export has got, and the table's version.
SELECT @schema@.queue_message_export_commit(%(lake)s, %(epoch)s, %(exported)s::text::xid8, %(version)s)
