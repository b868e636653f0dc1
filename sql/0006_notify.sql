-- A hint that there is something to claim; the poll is the guarantee. By default only while a relay is idle: a NOTIFY in each commit
-- takes group commit from whoever inserts. Nothing here is named queue_message_notify() or do_notify: those names belong to others.

-- The gate. A relay with nothing to do holds this advisory lock exclusively on its LISTEN session, looks once more, and sleeps.
-- Who inserts takes it shared until the commit: got it, then no relay sleeps or can fall asleep past this commit; not got, then one sleeps.
CREATE FUNCTION @schema@.queue_message_gate_key() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT pg_catalog.hashtextextended('queue_message gate of ' OPERATOR(pg_catalog.||) @schema_literal@::pg_catalog.text, 0::pg_catalog.int8)
$body$;

-- The mode stands in a function's text, so it is part of the plans of whoever calls it, and PostgreSQL plans again when it is written
-- anew: to look it up in the table would cost every INSERT more than all the rest of its trigger.
CREATE FUNCTION @schema@.queue_message_hint_mode() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $body$ SELECT 'idle' $body$;

-- Writes that function anew when the setting changes: for the next statement of whoever is connected.
CREATE FUNCTION @schema@.queue_message_hint_mode_set() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    mode text := coalesce((SELECT value FROM @schema@.queue_message_setting WHERE name = 'notify'), 'idle');
BEGIN
    IF mode <> @schema@.queue_message_hint_mode() THEN
        EXECUTE format('CREATE OR REPLACE FUNCTION %I.queue_message_hint_mode() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS %L',
                       @schema_literal@::text, format(' SELECT %L ', mode));
    END IF;
    RETURN NULL;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'The notify mode stands in a function, which % may not write: GRANT CREATE ON SCHEMA % TO %; then set it again.',
        current_user, quote_ident(@schema_literal@), quote_ident(current_user) USING ERRCODE = 'insufficient_privilege';
END
$body$;

CREATE TRIGGER queue_message_hint_mode AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON @schema@.queue_message_setting
    FOR EACH STATEMENT EXECUTE FUNCTION @schema@.queue_message_hint_mode_set();

-- Where nobody needs telling it ends at the first IF: one expression, because each is set up once a transaction; and with the rights and
-- the search path of who inserts, because to set others and set them back costs each INSERT half as much again. So what it calls is named
-- with its schema or takes exactly these types: on no path is there a better match.
CREATE FUNCTION @schema@.queue_message_hint() RETURNS trigger LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
BEGIN
    IF @schema@.queue_message_hint_mode() = 'off'::text OR pg_catalog.current_setting('relay.notify'::text, true) = 'off'::text
        OR @schema@.queue_message_hint_mode() = 'idle'::text
            AND pg_catalog.pg_try_advisory_xact_lock_shared(@schema@.queue_message_gate_key()) THEN
        RETURN NULL;
    ELSIF TG_LEVEL = 'ROW' THEN
        PERFORM @schema@.queue_message_tell(@schema@.queue_message_hint_mode(), NEW.id);
    ELSE
        PERFORM @schema@.queue_message_tell(@schema@.queue_message_hint_mode(), NULL);
    END IF;
    RETURN NULL;
END
$body$;

-- One message, or where there is no id whatever this transaction inserted. Definer's rights: the application may not look at what it
-- inserted.
CREATE FUNCTION @schema@.queue_message_tell(mode text, id uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF pg_notification_queue_usage() > 0.5 THEN
        -- A full queue makes commits fail: rather no hint.
        RETURN;
    ELSIF mode = 'idle' THEN
        -- One constant payload collapses to one notification a transaction.
        PERFORM pg_notify('queue_message_notify', '');
    ELSIF id IS NOT NULL THEN
        PERFORM pg_notify('queue_message_notify', @schema@.queue_message_payload(id, 'queue_message'));
    ELSE
        PERFORM @schema@.queue_message_notify_inserted();
    END IF;
END
$body$;

-- Mode always: one notification for each message that this statement inserted, at most 1,000; the rest is notified again within a minute.
-- The rows are found by the primary key. A transition table would cost every INSERT in every mode.
CREATE FUNCTION @schema@.queue_message_notify_inserted() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    -- The last number notified in this transaction; rolled back with a savepoint, as the notifications are.
    notified bigint := coalesce(nullif(current_setting('relay.notified_seq', true), ''), '0');
    message record;
BEGIN
    FOR message IN SELECT m.id, m.seq FROM @schema@.queue_message m WHERE m.xid = pg_current_xact_id() AND m.seq > notified ORDER BY m.seq LIMIT 1000 LOOP
        PERFORM pg_notify('queue_message_notify', @schema@.queue_message_payload(message.id, 'queue_message'));
        notified := message.seq;
    END LOOP;
    PERFORM set_config('relay.notified_seq', notified::text, true);
END
$body$;

CREATE TRIGGER queue_message_inserted AFTER INSERT ON @schema@.queue_message
    FOR EACH STATEMENT EXECUTE FUNCTION @schema@.queue_message_hint();

-- Claimable again: released, or back from an expired lock.
CREATE TRIGGER queue_message_released AFTER UPDATE OF lock_expires_at ON @schema@.queue_message
    FOR EACH ROW WHEN (OLD.lock_expires_at IS NOT NULL AND NEW.lock_expires_at IS NULL
                       AND (NEW.available_at IS NULL OR NEW.available_at <= now()))
    EXECUTE FUNCTION @schema@.queue_message_hint();
