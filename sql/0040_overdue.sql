-- What nobody does in time is seen: sending what is due, retention and the minute's sweep.

-- For how many seconds each task has been overdue, in one row. Retention is due an hour after its last run that was committed, the sweep a minute,
-- or after the first of the living relays began: where none lives nobody owes them.
CREATE VIEW @schema@.queue_message_overdue AS
    WITH begun AS (SELECT min(r.started_at) AS at FROM @schema@.queue_message_relay_state r WHERE r.alive),
    due AS (
        SELECT (SELECT min(k.due_at) FROM @schema@.queue_message_keyed_row k) AS keyed,
            (SELECT min(s.next_at) FROM @schema@.queue_message_schedule s) AS schedules,
            (SELECT greatest(c.seen_at, b.at) + interval '1 hour' FROM @schema@.queue_message_clock_seen c
             WHERE c.chore = 'retention' AND b.at IS NOT NULL) AS retention,
            (SELECT greatest(c.seen_at, b.at) + interval '1 minute' FROM @schema@.queue_message_clock_seen c
             WHERE c.chore = 'sweep' AND b.at IS NOT NULL) AS sweep
        FROM begun b
    )
    -- least() passes over what is null: nothing is due. What is due may be infinite.
    SELECT
        extract(epoch FROM now() - greatest(least(d.keyed, now()), 'epoch'))::double precision AS keyed_overdue_seconds,
        extract(epoch FROM now() - greatest(least(d.schedules, now()), 'epoch'))::double precision AS schedules_overdue_seconds,
        extract(epoch FROM now() - greatest(least(d.retention, now()), 'epoch'))::double precision AS retention_overdue_seconds,
        extract(epoch FROM now() - greatest(least(d.sweep, now()), 'epoch'))::double precision AS sweep_overdue_seconds
    FROM due d;
COMMENT ON VIEW @schema@.queue_message_overdue IS 'For how long each task of the relays has been overdue.';

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_overdue;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_overdue() p
    UNION ALL VALUES
        ('queue_message_relay', 'SELECT ON %1$I.queue_message_overdue'),
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_overdue')
$body$;
