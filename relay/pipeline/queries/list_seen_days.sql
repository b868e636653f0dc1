-- What earlier looks and verifications know of each day: how many rows this lake must have of it at the least, and whether it is damaged.
SELECT partition, CASE WHEN lake = %(lake)s THEN greatest(CASE WHEN verified_at IS NOT NULL THEN rows END, lake_rows, 0) ELSE 0 END,
    damage IS NOT NULL
FROM @schema@.queue_message_export WHERE partition ~ '_[0-9]{8}$'
