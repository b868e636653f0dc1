-- An application's trigger that raises for one message of the archive keeps no other lock from being freed.

-- Archives messages whose lock expired once too often, and sets their ordering keys free, or parks them, by policy.
CREATE OR REPLACE FUNCTION @schema@.queue_message_sweep_dead(dead uuid[], clock timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    moved bigint := 0;
BEGIN
    FOR one IN
        SELECT m.id, m.ordering_key, m.attempts + (m.locked_by IS NULL)::integer AS attempts, m.lock_expires_at, r.name
        FROM @schema@.queue_message m LEFT JOIN @schema@.queue_message_relay r ON r.id = m.locked_by
        WHERE m.id = ANY (dead) ORDER BY m.xid, m.seq
    LOOP
        -- One that the archive refuses must not keep the others from being freed.
        BEGIN
            moved := moved + @schema@.queue_message_archive_now(ARRAY[one.id], 'lock_expired', 'lock_expired',
                format('The lock of %s expired at %s, attempt %s.', coalesce(one.name, 'an unknown holder'), one.lock_expires_at, one.attempts),
                coalesce(one.name, 'sweep'));
            IF one.ordering_key IS NOT NULL AND @schema@.queue_message_setting_value('on_dead_key') = 'park' THEN
                INSERT INTO @schema@.queue_message_key_hold (ordering_key, held_by, reason)
                VALUES (one.ordering_key, 'sweep', format('head %s became dead: lock_expired', one.id)) ON CONFLICT DO NOTHING;
            ELSIF one.ordering_key IS NOT NULL THEN
                PERFORM @schema@.queue_message_wake_key(one.ordering_key, clock);
            END IF;
        EXCEPTION WHEN data_exception OR integrity_constraint_violation OR plpgsql_error THEN
            RAISE WARNING 'message % cannot be archived: %', one.id, @schema@.queue_message_refusal(SQLSTATE, SQLERRM);
        END;
    END LOOP;
    RETURN moved;
END
$body$;
