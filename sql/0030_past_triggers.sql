-- An application's trigger that refuses the UPDATE of one message of the queue keeps no other from being claimed, and no other lock from
-- being freed.

-- Claims one message. Returns its attempts, this one included; or the SQLSTATE and the words of what refuses it, an empty state for a
-- trigger that skips the row. It takes effect within the caller's statement, which has locked the row. The search path is the caller's,
-- as for a claim of many: the application's trigger may count on it.
CREATE FUNCTION @schema@.queue_message_claim_one(
    at_xid xid8, at_seq bigint, until timestamptz, token uuid, holder integer, OUT attempts integer, OUT state text, OUT words text)
LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
BEGIN
    UPDATE @schema@.queue_message m
    SET lock_expires_at = until, lock_token = token, locked_by = holder, attempts = m.attempts OPERATOR(pg_catalog.+) 1
    WHERE m.xid OPERATOR(pg_catalog.=) at_xid AND m.seq OPERATOR(pg_catalog.=) at_seq
    RETURNING m.attempts INTO attempts;
    IF attempts IS NULL THEN
        state := '';
    END IF;
EXCEPTION WHEN OTHERS THEN
    -- Rights, resources, locks and the like are no matter of one message.
    IF left(SQLSTATE, 2) IN ('08', '25', '28', '40', '42', '53', '55', '57', '58') THEN
        RAISE;
    END IF;
    attempts := NULL;
    state := SQLSTATE;
    words := SQLERRM;
END
$body$;

-- Puts those of these messages whose locks are over back into the queue, but for those that have no attempt left; returns how many. What
-- comes back is due at once and keeps locked_by: that marks a suspect, which is claimed alone from now on. A lock set by hand did not count
-- an attempt when it was taken.
CREATE FUNCTION @schema@.queue_message_sweep_release(expired uuid[], clock timestamptz, allowed integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    released bigint;
BEGIN
    UPDATE @schema@.queue_message m
    SET lock_expires_at = NULL, lock_token = NULL, locked_by = coalesce(m.locked_by, 0), available_at = clock,
        attempts = m.attempts + (m.locked_by IS NULL)::integer, last_error = format('lock expired at %s', m.lock_expires_at)
    WHERE m.id = ANY (expired) AND m.attempts + (m.locked_by IS NULL)::integer < allowed
        AND @schema@.queue_message_lock_over(m.lock_expires_at, m.lock_token, m.locked_by, clock);
    GET DIAGNOSTICS released = ROW_COUNT;
    RETURN released;
END
$body$;

-- The same, but one by one past those that are refused.
CREATE FUNCTION @schema@.queue_message_sweep_release_each(expired uuid[], clock timestamptz, allowed integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one uuid;
    released bigint := 0;
BEGIN
    FOREACH one IN ARRAY expired LOOP
        BEGIN
            released := released + @schema@.queue_message_sweep_release(ARRAY[one], clock, allowed);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'the lock of message % cannot be freed: %', one, coalesce(@schema@.queue_message_refusal(SQLSTATE, SQLERRM), SQLSTATE);
        END;
    END LOOP;
    RETURN released;
END
$body$;

-- Frees these messages, whose locks are over: back into the queue, or to the archive where no attempt is left. As before, but past those
-- that are refused.
CREATE OR REPLACE FUNCTION @schema@.queue_message_sweep_free(expired uuid[], clock timestamptz, OUT released bigint, OUT archived bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    -- 'archive' is the strict convention: one lost lock, and the message is dead.
    allowed integer := CASE @schema@.queue_message_setting_value('on_lock_expired')
        WHEN 'archive' THEN 0 ELSE @schema@.queue_message_setting_value('max_attempts')::integer END;
    lost uuid[];
BEGIN
    BEGIN
        released := @schema@.queue_message_sweep_release(expired, clock, allowed);
    EXCEPTION WHEN OTHERS THEN
        released := @schema@.queue_message_sweep_release_each(expired, clock, allowed);
    END;
    lost := ARRAY(SELECT m.id FROM @schema@.queue_message m
                  WHERE m.id = ANY (expired) AND m.attempts + (m.locked_by IS NULL)::integer >= allowed
                      AND @schema@.queue_message_lock_over(m.lock_expires_at, m.lock_token, m.locked_by, clock));
    -- For no id at all PostgreSQL may walk the index of every ordered message: an empty list implies what that index asks for.
    archived := CASE WHEN cardinality(lost) = 0 THEN 0 ELSE @schema@.queue_message_sweep_dead(lost, clock) END;
END
$body$;

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_30;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_30() p
    UNION ALL VALUES ('queue_message_relay', 'EXECUTE ON FUNCTION %1$I.queue_message_claim_one')
$body$;
