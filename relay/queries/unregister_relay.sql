-- A relay leaves: its lanes are free at once; its row stays only while messages still carry its locks.
WITH freed AS (
    UPDATE @schema@.queue_message_lane SET owner = NULL, lease_expires_at = NULL WHERE owner = %(relay_id)s
)
DELETE FROM @schema@.queue_message_relay WHERE id = %(relay_id)s AND NOT %(holds_locks)s
