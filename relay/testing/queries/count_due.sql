-- Messages that the relay could still move now: claimable ones, those in flight, and those whose keys are due. Messages that an operator
-- holds are not due, nor those that wait behind a message of their ordering key. The clock is read after the snapshot: what is released
-- meanwhile is due.
SELECT (
    SELECT count(*) FROM @schema@.queue_message AS m
    WHERE (m.lock_expires_at IS NOT NULL OR m.available_at IS NULL OR m.available_at <= clock_timestamp())
        AND NOT EXISTS (SELECT FROM @schema@.queue_message_pause AS p WHERE p.exchange = m.exchange AND m.lock_expires_at IS NULL)
        AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold AS h WHERE h.ordering_key = m.ordering_key AND m.lock_expires_at IS NULL)
        AND NOT EXISTS (
            SELECT FROM @schema@.queue_message AS head
            WHERE head.ordering_key = m.ordering_key AND (head.xid, head.seq) < (m.xid, m.seq)
                AND head.lock_expires_at IS NULL AND head.available_at > clock_timestamp())
) + (SELECT count(*) FROM @schema@.queue_message_keyed_row WHERE due_at <= clock_timestamp())
