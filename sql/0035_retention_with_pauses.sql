-- Retention continues where relays pause regularly, and deletes the rows of replay jobs and of watches that have ended.

-- As before, but a jump while retention waits does not extend the wait: relays that pause for the night, or run as jobs, make one each day.
CREATE OR REPLACE FUNCTION @schema@.queue_message_clock_jumped(clock timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    seen record;
BEGIN
    SELECT c.seen_at, c.until INTO seen FROM @schema@.queue_message_clock_seen c WHERE c.chore = 'retention';
    IF clock < seen.seen_at - interval '3 hours' OR clock >= seen.until THEN
        seen.until := NULL;
    ELSIF seen.until IS NULL AND clock > seen.seen_at + interval '3 hours' THEN
        seen.until := clock + interval '1 day';
        RAISE WARNING 'Retention last looked at %, and now it is %: nothing is dropped before %.', seen.seen_at, clock, seen.until
            USING HINT = 'If the clock is right, all is well; otherwise set it.';
    END IF;
    -- Who finds another at it has nothing to note, and waits for nobody's DROP.
    PERFORM FROM @schema@.queue_message_clock_seen c WHERE c.chore = 'retention' FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE @schema@.queue_message_clock_seen c SET seen_at = clock, until = seen.until WHERE c.chore = 'retention';
    END IF;
    RETURN seen.until IS NOT NULL;
END
$body$;

-- As before, but retention may delete the row of a job while another transaction waits for it: then the row is added again.
CREATE OR REPLACE FUNCTION @schema@.queue_message_take_turn(task text, patient boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    LOOP
        -- Another transaction that adds the row is waited for.
        IF NOT EXISTS (SELECT FROM @schema@.queue_message_turn t WHERE t.task = task) THEN
            INSERT INTO @schema@.queue_message_turn (task) VALUES (task) ON CONFLICT DO NOTHING;
        END IF;
        IF patient THEN
            PERFORM FROM @schema@.queue_message_turn t WHERE t.task = task FOR UPDATE;
        ELSE
            PERFORM FROM @schema@.queue_message_turn t WHERE t.task = task FOR UPDATE SKIP LOCKED;
        END IF;
        EXIT WHEN FOUND OR NOT patient;
    END LOOP;
    RETURN FOUND;
END
$body$;

-- Whether a process holds an advisory lock with this key. Reads the locks as they are at the call, so that a row that a watch has just
-- written counts: pg_stat_activity stays within a transaction as it was first read.
CREATE FUNCTION @schema@.queue_message_lock_held(pid integer, key bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT EXISTS (
        SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid = queue_message_lock_held.pid
          AND (l.classid::bigint << 32 | l.objid::bigint) = queue_message_lock_held.key)
$body$;

-- Deletes the rows of replay jobs that are not under way, and of watches whose session has ended. A row that is locked is in use.
CREATE FUNCTION @schema@.queue_message_delete_turns() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    DELETE FROM @schema@.queue_message_turn t WHERE t.task IN (
        SELECT o.task FROM @schema@.queue_message_turn o WHERE starts_with(o.task, 'replay ') AND o.task <> 'replay by id'
        LIMIT 1000 FOR UPDATE SKIP LOCKED);
    DELETE FROM @schema@.queue_message_watch w WHERE w.handlers IN (
        SELECT o.handlers FROM @schema@.queue_message_watch o WHERE NOT coalesce(@schema@.queue_message_lock_held(o.pid, o.key), false)
        LIMIT 1000 FOR UPDATE SKIP LOCKED);
END
$body$;

-- As before, and rows that only say who is at work.
CREATE OR REPLACE FUNCTION @schema@.queue_message_retain(now timestamptz DEFAULT NULL)
RETURNS TABLE (action text, target text, messages bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    dead_days integer := @schema@.queue_message_setting_value('dead_retention_days')::integer;
    exported boolean := @schema@.queue_message_setting_value('export_registered')::boolean;
BEGIN
    PERFORM @schema@.queue_message_delete_turns();
    IF @schema@.queue_message_clock_jumped(clock) THEN
        action := 'distrusted';
        target := 'clock';
        RETURN NEXT;
        RETURN;
    END IF;
    IF dead_days > 0 THEN
        action := 'deleted';
        target := 'queue_message_dead';
        messages := @schema@.queue_message_delete_dead(clock - make_interval(days => dead_days), exported);
        IF messages > 0 THEN
            RETURN NEXT;
        END IF;
    END IF;
    action := 'deleted';
    target := 'queue_message_received';
    messages := @schema@.queue_message_delete_received(clock);
    IF messages > 0 THEN
        RETURN NEXT;
    END IF;
    action := 'deleted';
    target := 'queue_message_dedup';
    messages := @schema@.queue_message_delete_keys(clock);
    IF messages > 0 THEN
        RETURN NEXT;
    END IF;
    FOR target IN SELECT o FROM @schema@.queue_message_old_days(clock) o LOOP
        SELECT d.action, d.messages INTO action, messages FROM @schema@.queue_message_drop_day(target, exported) d;
        RETURN NEXT;
        EXIT WHEN action IN ('dropped', 'busy');
    END LOOP;
END
$body$;
