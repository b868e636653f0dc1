-- The ids of messages with one of these ordering keys that transactions from low to below high have archived. An erased message has no key.
SELECT id::text FROM @schema@.queue_message_archive
WHERE archived_xid >= %(low)s::text::xid8 AND archived_xid < %(high)s::text::xid8 AND ordering_key = ANY(%(keys)s::text[])
