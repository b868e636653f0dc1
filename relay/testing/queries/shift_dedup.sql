-- Advance the time of dedup keys that are known until then.
UPDATE @schema@.queue_message_dedup SET until = until - %(by)s
