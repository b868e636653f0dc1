-- A hint that there is something to claim; the poll is the guarantee. By default only while a relay is idle: a NOTIFY in each commit
-- takes group commit from whoever inserts. Nothing here is named queue_message_notify() or do_notify: those names belong to others.

-- The gate. A relay with nothing to do holds this advisory lock exclusively on its LISTEN session, looks once more, and sleeps.
-- Who inserts takes it shared until the commit: got it, then no relay sleeps or can fall asleep past this commit; not got, then one sleeps.
CREATE FUNCTION @schema@.queue_message_gate_key() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT hashtextextended('queue_message gate of ' || @schema_literal@, 0)
$body$;

-- Definer's rights: the application may neither read settings nor call this by itself.
CREATE FUNCTION @schema@.queue_message_hint() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    mode text := coalesce((SELECT value FROM @schema@.queue_message_setting WHERE name = 'notify'), 'idle');
BEGIN
    IF mode = 'off' OR (mode = 'idle' AND pg_try_advisory_xact_lock_shared(@schema@.queue_message_gate_key())) THEN
        RETURN NULL;
    ELSIF pg_notification_queue_usage() > 0.5 THEN
        -- A full queue makes commits fail: rather no hint.
        RETURN NULL;
    ELSIF mode = 'idle' THEN
        -- One constant payload collapses to one notification a transaction.
        PERFORM pg_notify('queue_message_notify', '');
    ELSIF TG_LEVEL = 'ROW' THEN
        PERFORM pg_notify('queue_message_notify', @schema@.queue_message_payload(NEW.id, 'queue_message'));
    ELSE
        PERFORM @schema@.queue_message_notify_inserted();
    END IF;
    RETURN NULL;
END
$body$;

-- Mode always: one notification for each message that this statement inserted, at most 1,000; the rest is notified again within a minute.
-- The rows are found by the primary key. A transition table would cost every INSERT in every mode.
CREATE FUNCTION @schema@.queue_message_notify_inserted() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
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
    FOR EACH STATEMENT WHEN (current_setting('relay.notify', true) IS DISTINCT FROM 'off')
    EXECUTE FUNCTION @schema@.queue_message_hint();

-- Claimable again: released, or back from an expired lock.
CREATE TRIGGER queue_message_released AFTER UPDATE OF lock_expires_at ON @schema@.queue_message
    FOR EACH ROW WHEN (OLD.lock_expires_at IS NOT NULL AND NEW.lock_expires_at IS NULL
                       AND (NEW.available_at IS NULL OR NEW.available_at <= now())
                       AND current_setting('relay.notify', true) IS DISTINCT FROM 'off')
    EXECUTE FUNCTION @schema@.queue_message_hint();
