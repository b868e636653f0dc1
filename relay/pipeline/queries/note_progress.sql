-- How far the export has got, where this server can be written to.
SELECT @schema@.queue_message_export_progress(%(exported)s::text::xid8) WHERE NOT pg_is_in_recovery()
