-- Schedules with their last and next ticks, as UTC and as their zones show them; for each that fails, why.
SELECT name, spec, time_zone, exchange, routing_key, content, options, ordering_key, extract(epoch FROM expires_after)::bigint AS expires_after,
    missed, paused, next_at, @schema@.queue_message_shown(next_at, time_zone) AS next, last_at,
    @schema@.queue_message_shown(last_at, time_zone) AS last, last_id, last_error,
    (SELECT failing.why FROM @schema@.queue_message_schedule_failing AS failing WHERE failing.name = schedule.name) AS fails, created_at, created_by, changed_at
FROM @schema@.queue_message_schedule AS schedule ORDER BY name
