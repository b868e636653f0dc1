-- As before, but messages that are due at the same moment have an order, so a scan continues behind the last one that it saw. Where more than a
-- page of them shared a time, the rest was left to the scan of the whole queue.
DROP INDEX @schema@.queue_message_available_at_idx;
CREATE INDEX queue_message_available_at_idx ON @schema@.queue_message (available_at, xid, seq) WHERE available_at IS NOT NULL;
