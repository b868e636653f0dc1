-- Advance the time of dedup keys: the end of the time in which they are known comes nearer.
UPDATE @schema@.queue_message_dedup SET until = until - %(by)s
