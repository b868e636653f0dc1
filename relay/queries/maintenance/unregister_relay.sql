-- A relay leaves: its lanes are free at once. Its row stays only while messages still carry its locks, and says that the relay has left.
-- Nothing happens if the row is another relay's (see heartbeat.sql). Lanes of a relay without a row are free anyway.
WITH own AS MATERIALIZED (
    SELECT id FROM @schema@.queue_message_relay WHERE id = %(relay_id)s AND started_at = %(started_at)s::timestamptz
), freed AS (
    UPDATE @schema@.queue_message_lane SET owner = NULL, lease_expires_at = NULL WHERE owner IN (SELECT id FROM own)
), marked AS (
    UPDATE @schema@.queue_message_relay SET state = '{"left": true}' WHERE id IN (SELECT id FROM own) AND %(holds_locks)s
)
DELETE FROM @schema@.queue_message_relay WHERE id IN (SELECT id FROM own) AND NOT %(holds_locks)s
