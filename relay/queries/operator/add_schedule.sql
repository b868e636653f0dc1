-- Add a schedule, or replace the one of that name; returns its first tick, as UTC and as its zone shows it.
WITH added AS MATERIALIZED (
    SELECT @schema@.queue_message_schedule_add(%(name)s, %(spec)s, %(exchange)s, %(routing_key)s, %(content)s, %(time_zone)s, %(options)s,
        %(ordering_key)s, %(expires_after)s, %(missed)s, %(paused)s, %(replace)s) AS next_at
)
SELECT added.next_at, @schema@.queue_message_shown(added.next_at, %(time_zone)s) AS next FROM added
