-- What earlier looks and verifications know of each day: how many rows this lake must have of it at the least, and whether it is damaged.
SELECT partition, greatest(CASE WHEN verified_at IS NOT NULL AND lake = %(lake)s THEN rows END, lake_rows, 0),
    damage IS NOT NULL
FROM @schema@.queue_message_export WHERE partition ~ '_[0-9]{8}$'
