-- Seven roles, none of which can log in or owns anything: GRANT queue_message_producer TO the application's login, and so on.

-- Every privilege of every role, as queue_message_grants() reads it: %1$I stands for the schema. Functions that read and change nothing are
-- granted to all of them.
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text) LANGUAGE sql IMMUTABLE AS $body$
    VALUES
        -- The application: insert what an application may write; of what is there it sees the id alone, for RETURNING and ON CONFLICT.
        ('queue_message_producer', 'INSERT (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at) ON %1$I.queue_message'),
        ('queue_message_producer', 'SELECT (id) ON %1$I.queue_message'),
        ('queue_message_producer', 'INSERT (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at) ON %1$I.queue_message_app'),
        ('queue_message_producer', 'SELECT (id) ON %1$I.queue_message_app'),
        ('queue_message_producer', 'SELECT ON %1$I.queue_message_contract'),
        ('queue_message_producer', 'INSERT (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at, bundle_key, coalesce_key, dedup_key, dedup_seconds) ON %1$I.queue_message_keyed'),
        ('queue_message_producer', 'SELECT (id) ON %1$I.queue_message_keyed'),
        ('queue_message_producer', 'EXECUTE ON FUNCTION %1$I.queue_message_uuid, %1$I.queue_message_hint_mode, %1$I.queue_message_tell, %1$I.queue_message_known'),
        -- The consumer: marks what it has handled, and sees its own answer; handles messages in its own tables.
        ('queue_message_consumer', 'INSERT (consumer, message_id), SELECT (message_id) ON %1$I.queue_message_received'),
        -- The receiver of an inbox: writes what came from a queue, marks it, counts what waits, and puts to the dead side what can be no message.
        ('queue_message_receiver', 'INSERT (exchange, routing_key, content, body, options) ON %1$I.queue_message'),
        ('queue_message_receiver', 'SELECT (id) ON %1$I.queue_message'),
        ('queue_message_receiver', 'INSERT (consumer, message_id), SELECT (consumer, message_id) ON %1$I.queue_message_received'),
        ('queue_message_receiver', 'SELECT ON %1$I.queue_message_setting, %1$I.queue_message_migration'),
        ('queue_message_receiver', 'EXECUTE ON FUNCTION %1$I.queue_message_uuid, %1$I.queue_message_hint_mode, %1$I.queue_message_tell,
            %1$I.queue_message_reject_delivery'),
        -- The relay: locks and moves messages; no DDL, no change of what is archived.
        ('queue_message_relay', 'SELECT, DELETE ON %1$I.queue_message'),
        ('queue_message_relay', 'UPDATE (lock_expires_at, lock_token, locked_by, attempts, available_at, last_error) ON %1$I.queue_message'),
        ('queue_message_relay', 'INSERT, SELECT (id, attempts, handled_by, claimed_at, result, error_code) ON %1$I.queue_message_archive'),
        ('queue_message_relay', 'SELECT, INSERT, UPDATE, DELETE ON %1$I.queue_message_relay'),
        ('queue_message_relay', 'SELECT, UPDATE ON %1$I.queue_message_lane'),
        ('queue_message_relay', 'SELECT, INSERT ON %1$I.queue_message_key_hold'),
        ('queue_message_relay', 'SELECT (due_at) ON %1$I.queue_message_keyed_row'),
        ('queue_message_operator', 'SELECT (due_at) ON %1$I.queue_message_keyed_row'),
        ('queue_message_relay', 'SELECT ON %1$I.queue_message_pause, %1$I.queue_message_limit, %1$I.queue_message_setting, %1$I.queue_message_migration'),
        ('queue_message_relay', 'SELECT ON %1$I.queue_message_contract'),
        ('queue_message_relay', 'SELECT ON %1$I.queue_message_inbox, %1$I.queue_message_status, %1$I.queue_message_blocked_key, %1$I.queue_message_relay_state'),
        ('queue_message_relay', 'SELECT (next_at) ON %1$I.queue_message_schedule'),
        ('queue_message_relay', 'SELECT ON %1$I.queue_message_schedule_failing'),
        ('queue_message_relay', 'EXECUTE ON FUNCTION %1$I.queue_message_run_schedules'),
        -- What a worker answers lands in the request's row with the settle alone.
        ('queue_message_relay', 'EXECUTE ON FUNCTION %1$I.queue_message_answer'),
        ('queue_message_relay', 'EXECUTE ON FUNCTION %1$I.queue_message_ensure_partitions, %1$I.queue_message_retain, %1$I.queue_message_sweep,
            %1$I.queue_message_sweep_minute, %1$I.queue_message_fold, %1$I.queue_message_renotify, %1$I.queue_message_reject_unprintable, %1$I.queue_message_wake_key,
            %1$I.queue_message_hint_mode, %1$I.queue_message_tell, %1$I.queue_message_setting_value,
            %1$I.queue_message_count, %1$I.queue_message_oldest, %1$I.queue_message_days_ahead,
            %1$I.queue_message_export_lag, %1$I.queue_message_days_unverified, %1$I.queue_message_grants'),
        -- The operator: looks through views without contents, acts through functions.
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_state, %1$I.queue_message_status, %1$I.queue_message_dead_list,
            %1$I.queue_message_blocked_key, %1$I.queue_message_relay_state, %1$I.queue_message_recent'),
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_setting, %1$I.queue_message_pause, %1$I.queue_message_limit, %1$I.queue_message_key_hold,
            %1$I.queue_message_dead_ack, %1$I.queue_message_migration, %1$I.queue_message_export, %1$I.queue_message_replay_ledger,
            %1$I.queue_message_audit'),
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_export_position'),
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_contract, %1$I.queue_message_recent_key'),
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_adoption, %1$I.queue_message_adoption_seen'),
        ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_contract_add, %1$I.queue_message_contract_mode,
            %1$I.queue_message_contract_remove'),
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_stats_window, %1$I.queue_message_stats_hour, %1$I.queue_message_stats_day'),
        -- To add a schedule a login needs to be a producer too.
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_schedule'),
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_schedule_failing'),
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_request'),
        ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_schedule_add, %1$I.queue_message_schedule_remove,
            %1$I.queue_message_schedule_pause, %1$I.queue_message_schedule_resume, %1$I.queue_message_schedule_run_now,
            %1$I.queue_message_run_schedules, %1$I.queue_message_next_tick, %1$I.queue_message_day_tick, %1$I.queue_message_clock_change,
            %1$I.queue_message_shown'),
        ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_pause, %1$I.queue_message_resume, %1$I.queue_message_limit, %1$I.queue_message_unlimit, %1$I.queue_message_key_park,
            %1$I.queue_message_key_resume, %1$I.queue_message_key_skip, %1$I.queue_message_cancel, %1$I.queue_message_dead_acknowledge, %1$I.queue_message_dead_answer,
            %1$I.queue_message_dead_replay, %1$I.queue_message_config_set,
            %1$I.queue_message_replay, %1$I.queue_message_find, %1$I.queue_message_replay_many, %1$I.queue_message_sweep,
            %1$I.queue_message_sweep_minute, %1$I.queue_message_fold, %1$I.queue_message_renotify, %1$I.queue_message_reject_unprintable,
            %1$I.queue_message_ensure_partitions, %1$I.queue_message_retain,
            %1$I.queue_message_setting_value, %1$I.queue_message_count, %1$I.queue_message_oldest, %1$I.queue_message_days_ahead,
            %1$I.queue_message_export_lag, %1$I.queue_message_days_unverified, %1$I.queue_message_grants'),
        -- The export: reads the archive, and says what it has verified.
        ('queue_message_etl', 'SELECT ON %1$I.queue_message_archive, %1$I.queue_message_archive_daily, %1$I.queue_message_dead,
            %1$I.queue_message_dead_ack, %1$I.queue_message_status, %1$I.queue_message_setting, %1$I.queue_message_migration'),
        ('queue_message_etl', 'SELECT, INSERT, UPDATE, DELETE ON %1$I.queue_message_export'),
        ('queue_message_etl', 'SELECT, INSERT, UPDATE, DELETE ON %1$I.queue_message_stats_window, %1$I.queue_message_stats_hour,
            %1$I.queue_message_stats_day'),
        ('queue_message_etl', 'SELECT ON %1$I.queue_message_export_position'),
        -- `relay contract test` runs a contract over contents of the archive.
        ('queue_message_etl', 'SELECT ON %1$I.queue_message_contract'),
        ('queue_message_etl', 'SELECT ON %1$I.queue_message_replay_ledger'),
        ('queue_message_etl', 'SELECT, INSERT, DELETE ON %1$I.queue_message_receipt'),
        ('queue_message_etl', 'EXECUTE ON FUNCTION %1$I.queue_message_setting_value, %1$I.queue_message_count, %1$I.queue_message_oldest,
            %1$I.queue_message_days_ahead, %1$I.queue_message_export_lag, %1$I.queue_message_days_unverified,
            %1$I.queue_message_export_progress, %1$I.queue_message_grants'),
        -- Replay from the lake, which alone may hold the message still. What is enqueued is what the caller says it was, so an export does
        -- not have this by itself.
        ('queue_message_replayer', 'EXECUTE ON FUNCTION %1$I.queue_message_replay_rows, %1$I.queue_message_grants'),
        ('queue_message_replayer', 'SELECT ON %1$I.queue_message_replay_ledger, %1$I.queue_message_migration')
$body$;

-- The same one by one, with the schema itself and the functions that read and change nothing: what is granted, and what
-- `relay migrate --check` looks for. An object that is not there is null, so that a GRANT fails on it.
CREATE FUNCTION @schema@.queue_message_grants()
RETURNS TABLE (role text, privilege text, columns text, kind text, object text, oid oid)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH place AS (
        SELECT n.oid FROM pg_namespace n WHERE n.nspname = @schema_literal@
    ), named AS (
        SELECT p.role, verb.found[1] AS privilege, verb.found[2] AS columns, object.found[1] AS name
        FROM @schema@.queue_message_privileges() p,
            regexp_matches(split_part(p.privilege, ' ON ', 1), '([A-Z]+)(?: [(]([^)]*)[)])?', 'g') AS verb (found),
            regexp_matches(p.privilege, '%1[$]I[.]([a-z_]+)', 'g') AS object (found)
    )
    SELECT DISTINCT p.role, 'USAGE', NULL, 'SCHEMA', quote_ident(@schema_literal@), place.oid FROM @schema@.queue_message_privileges() p, place
    UNION ALL
    SELECT n.role, n.privilege, n.columns, 'TABLE', c.oid::regclass::text, c.oid
    FROM named n CROSS JOIN place LEFT JOIN pg_class c ON c.relnamespace = place.oid AND c.relname = n.name WHERE n.privilege <> 'EXECUTE'
    UNION ALL
    SELECT n.role, n.privilege, n.columns, 'FUNCTION', f.oid::regprocedure::text, f.oid
    FROM named n CROSS JOIN place LEFT JOIN pg_proc f ON f.pronamespace = place.oid AND f.proname = n.name WHERE n.privilege = 'EXECUTE'
    UNION ALL
    SELECT DISTINCT p.role, 'EXECUTE', NULL, 'FUNCTION', f.oid::regprocedure::text, f.oid
    FROM @schema@.queue_message_privileges() p CROSS JOIN place JOIN pg_proc f ON f.pronamespace = place.oid
    WHERE f.proname LIKE E'queue\\_message\\_%' AND f.provolatile = 'i'
$body$;

-- Gives a grantee (PUBLIC or a quoted identifier) what one of the roles has.
CREATE FUNCTION @schema@.queue_message_grant(role text, grantee text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one text;
BEGIN
    FOR one IN SELECT format('%s%s ON %s %s', g.privilege, ' (' || g.columns || ')', g.kind, g.object)
               FROM @schema@.queue_message_grants() g WHERE g.role = queue_message_grant.role LOOP
        EXECUTE format('GRANT %s TO %s', one, grantee);
    END LOOP;
END
$body$;

-- Makes the roles that are missing and grants each what it needs; run by the owner after every migration.
-- Returns the statements for a role with CREATEROLE where this one may not, else null.
CREATE FUNCTION @schema@.queue_message_grant_roles() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one text;
    missing text;
BEGIN
    -- Functions are executable by everybody when they are made.
    FOR one IN SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
               WHERE n.nspname = @schema_literal@ AND p.proname LIKE E'queue\\_message\\_%' AND pg_has_role(p.proowner, 'USAGE')
                 AND has_function_privilege('public', p.oid, 'EXECUTE') LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', one);
    END LOOP;
    FOR one IN SELECT DISTINCT p.role FROM @schema@.queue_message_privileges() p ORDER BY 1 LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = one) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', one);
            END IF;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL; -- made meanwhile by the migration of another database
            WHEN insufficient_privilege THEN
                missing := concat_ws(' ', missing, format('CREATE ROLE %I NOLOGIN;', one));
                CONTINUE;
        END;
        PERFORM @schema@.queue_message_grant(one, quote_ident(one));
    END LOOP;
    RETURN missing;
END
$body$;
