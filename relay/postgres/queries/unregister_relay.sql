-- A relay leaves: its lanes are free at once; its row stays only while messages still carry its locks, and says so.
WITH freed AS (
    UPDATE @schema@.queue_message_lane SET owner = NULL, lease_expires_at = NULL WHERE owner = %(relay_id)s
), marked AS (
    UPDATE @schema@.queue_message_relay SET state = '{"left": true}' WHERE id = %(relay_id)s AND %(holds_locks)s
)
DELETE FROM @schema@.queue_message_relay WHERE id = %(relay_id)s AND NOT %(holds_locks)s
