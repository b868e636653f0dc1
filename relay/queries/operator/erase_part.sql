-- Erase messages of one table of the archive, or with dry_run count them.
SELECT @schema@.queue_message_erase(%(part)s::text::regclass, %(ids)s::uuid[], %(places)s::text[], %(ordering_keys)s::text[],
    dry_run => %(dry_run)s) AS messages
