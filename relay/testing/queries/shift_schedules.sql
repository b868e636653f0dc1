-- Advance the time of schedules: their next ticks come nearer.
UPDATE @schema@.queue_message_schedule SET next_at = next_at - %(by)s WHERE next_at IS NOT NULL
