-- Expired locks are released with the caller's rights and search_path, as claims take them: a trigger that lets a claim through lets the
-- release through. A message that the release or the archive refuses keeps no other message locked, and the relay reports it.

-- Whether an error would meet every message alike: rights, a server in trouble, a lock, the archive without its day. Any other error counts
-- as the message's own, also an internal one, which a damaged row raises. Every handler that passes a single message asks this function.
-- place: the table that the error names.
CREATE OR REPLACE FUNCTION @schema@.queue_message_meets_all(state text, place text, constraint_name text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT left(state, 2) IN ('08', '25', '28', '40', '53', '55', '57', '58')
        OR state = '23514' AND starts_with(place, 'queue_message') AND coalesce(constraint_name, '') = ''
$body$;

-- As before, but for the handler. A claim also stops at class 42, as the relay does for a claim of many: a connection without its rights
-- would report each message.
CREATE OR REPLACE FUNCTION @schema@.queue_message_claim_one(
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
    IF pg_catalog.starts_with(SQLSTATE, '42') OR @schema@.queue_message_meets_all(SQLSTATE, '', '') THEN
        RAISE;
    END IF;
    attempts := NULL;
    state := SQLSTATE;
    words := SQLERRM;
END
$body$;

-- How many attempts a message has. 'archive' is the strict convention: one lost lock, and the message is dead.
CREATE FUNCTION @schema@.queue_message_attempts_allowed() RETURNS integer
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT CASE @schema@.queue_message_setting_value('on_lock_expired')
        WHEN 'archive' THEN 0 ELSE @schema@.queue_message_setting_value('max_attempts')::integer END
$body$;

-- One entry of a list of refused messages, as a claim returns it.
CREATE FUNCTION @schema@.queue_message_refused_one(message uuid, state text, words text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT coalesce(jsonb_agg(jsonb_build_array(m.xid::text::bigint, m.seq, m.id, m.exchange, state, words)), '[]')
    FROM @schema@.queue_message m WHERE m.id = message
$body$;

-- Locks the messages at these positions whose locks are over, and returns those that have an attempt left. A message that another session has
-- locked is not waited for. See queue_message_free_expired() for why each is looked up by itself.
CREATE FUNCTION @schema@.queue_message_find_expired(
    xids xid8[], seqs bigint[], now timestamptz, OUT ids uuid[], OUT clock timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    allowed integer := @schema@.queue_message_attempts_allowed();
BEGIN
    clock := @schema@.queue_message_clock(now);
    ids := ARRAY(
        SELECT one.id FROM unnest(xids, seqs) AS place (xid, seq) CROSS JOIN LATERAL (
            SELECT m.id, m.attempts + (m.locked_by IS NULL)::integer AS attempts FROM @schema@.queue_message m
            WHERE m.xid = place.xid AND m.seq = place.seq
                AND @schema@.queue_message_lock_over(m.lock_expires_at, m.lock_token, m.locked_by, clock)
            FOR UPDATE SKIP LOCKED) one
        WHERE one.attempts < allowed);
END
$body$;

-- Releases these messages, which queue_message_find_expired() has locked. The search path and the rights are the caller's, as for a claim: the
-- application's trigger may count on them, and with the owner's rights it could be led to objects of the caller's.
CREATE FUNCTION @schema@.queue_message_release(ids uuid[], clock timestamptz) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    released pg_catalog.int8;
BEGIN
    UPDATE @schema@.queue_message m
    SET lock_expires_at = NULL, lock_token = NULL, locked_by = coalesce(m.locked_by, 0), available_at = clock,
        attempts = m.attempts OPERATOR(pg_catalog.+) CASE WHEN m.locked_by IS NULL THEN 1 ELSE 0 END,
        last_error = pg_catalog.format('lock expired at %s', m.lock_expires_at)
    WHERE m.id OPERATOR(pg_catalog.=) ANY (ids);
    GET DIAGNOSTICS released = ROW_COUNT;
    RETURN released;
END
$body$;

-- Releases these messages one by one, and returns those that are refused: with the error, or with an empty state where a trigger skips the row.
CREATE FUNCTION @schema@.queue_message_release_each(ids uuid[], clock timestamptz, OUT released bigint, OUT refused jsonb)
LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
DECLARE
    one pg_catalog.uuid;
BEGIN
    released := 0;
    refused := '[]';
    FOREACH one IN ARRAY ids LOOP
        BEGIN
            IF @schema@.queue_message_release(ARRAY[one], clock) OPERATOR(pg_catalog.=) 1 THEN
                released := released OPERATOR(pg_catalog.+) 1;
            ELSE
                refused := refused OPERATOR(pg_catalog.||) @schema@.queue_message_refused_one(one, '', NULL);
            END IF;
        EXCEPTION WHEN OTHERS THEN
            IF @schema@.queue_message_meets_all(SQLSTATE, '', '') THEN
                RAISE;
            END IF;
            refused := refused OPERATOR(pg_catalog.||) @schema@.queue_message_refused_one(one, SQLSTATE, SQLERRM);
        END;
    END LOOP;
END
$body$;

-- As before, but for the handler, and the refused messages are returned.
DROP FUNCTION @schema@.queue_message_sweep_dead(uuid[], timestamptz);
CREATE FUNCTION @schema@.queue_message_sweep_dead(dead uuid[], clock timestamptz, OUT archived bigint, OUT refused jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    place text;
    named text;
BEGIN
    archived := 0;
    refused := '[]';
    FOR one IN
        SELECT m.id, m.ordering_key, m.attempts + (m.locked_by IS NULL)::integer AS attempts, m.lock_expires_at, r.name
        FROM @schema@.queue_message m LEFT JOIN @schema@.queue_message_relay r ON r.id = m.locked_by
        WHERE m.id = ANY (dead) ORDER BY m.xid, m.seq
    LOOP
        -- One that the archive refuses must not keep the others from being freed.
        BEGIN
            archived := archived + @schema@.queue_message_archive_now(ARRAY[one.id], 'lock_expired', 'lock_expired',
                format('The lock of %s expired at %s, attempt %s.', coalesce(one.name, 'an unknown holder'), one.lock_expires_at, one.attempts),
                coalesce(one.name, 'sweep'));
            IF one.ordering_key IS NOT NULL AND @schema@.queue_message_setting_value('on_dead_key') = 'park' THEN
                INSERT INTO @schema@.queue_message_key_hold (ordering_key, held_by, reason)
                VALUES (one.ordering_key, 'sweep', format('head %s became dead: lock_expired', one.id)) ON CONFLICT DO NOTHING;
            ELSIF one.ordering_key IS NOT NULL THEN
                PERFORM @schema@.queue_message_wake_key(one.ordering_key, clock);
            END IF;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS place = TABLE_NAME, named = CONSTRAINT_NAME;
            IF @schema@.queue_message_meets_all(SQLSTATE, place, named) THEN
                RAISE;
            END IF;
            refused := refused || @schema@.queue_message_refused_one(one.id, SQLSTATE, SQLERRM);
            RAISE WARNING 'message % cannot be archived: %', one.id, coalesce(@schema@.queue_message_refusal(SQLSTATE, SQLERRM), SQLSTATE);
        END;
    END LOOP;
END
$body$;

-- Archives those of these messages that have no attempt left, in a block of its own: whatever it raises undoes no release.
CREATE FUNCTION @schema@.queue_message_sweep_lost(expired uuid[], clock timestamptz, OUT archived bigint, OUT refused jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    allowed integer := @schema@.queue_message_attempts_allowed();
    lost uuid[] := ARRAY(SELECT m.id FROM @schema@.queue_message m
                         WHERE m.id = ANY (expired) AND m.attempts + (m.locked_by IS NULL)::integer >= allowed
                             AND @schema@.queue_message_lock_over(m.lock_expires_at, m.lock_token, m.locked_by, clock));
BEGIN
    archived := 0;
    refused := '[]';
    -- For no id at all PostgreSQL may walk the index of every ordered message: an empty list implies what that index asks for.
    IF cardinality(lost) > 0 THEN
        SELECT d.archived, d.refused INTO archived, refused FROM @schema@.queue_message_sweep_dead(lost, clock) d;
    END IF;
EXCEPTION WHEN OTHERS THEN
    archived := 0;
    refused := @schema@.queue_message_refused_one(lost[1], SQLSTATE, SQLERRM);
    RAISE WARNING '% messages cannot be archived: %', cardinality(lost), @schema@.queue_message_why(SQLSTATE, SQLERRM);
END
$body$;

-- The same for the messages at these positions.
CREATE FUNCTION @schema@.queue_message_archive_expired(
    xids xid8[], seqs bigint[], now timestamptz, OUT archived bigint, OUT refused jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
BEGIN
    SELECT l.archived, l.refused INTO archived, refused FROM @schema@.queue_message_sweep_lost(ARRAY(
        SELECT one.id FROM unnest(xids, seqs) AS place (xid, seq) CROSS JOIN LATERAL (
            SELECT m.id FROM @schema@.queue_message m
            WHERE m.xid = place.xid AND m.seq = place.seq
                AND @schema@.queue_message_lock_over(m.lock_expires_at, m.lock_token, m.locked_by, clock)
            FOR UPDATE SKIP LOCKED) one), clock) l;
END
$body$;

-- Frees the messages at these positions whose locks are over, as a relay does: released as the caller, or archived as the owner where no attempt
-- is left. refused: a list of the messages that a trigger refuses, as a claim returns it.
CREATE FUNCTION @schema@.queue_message_free_locks(
    xids xid8[], seqs bigint[], now timestamptz DEFAULT NULL, OUT released bigint, OUT archived bigint, OUT refused jsonb)
LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
DECLARE
    ids pg_catalog.uuid[];
    clock pg_catalog.timestamptz;
    each record;
    dead record;
BEGIN
    SELECT f.ids, f.clock INTO ids, clock FROM @schema@.queue_message_find_expired(xids, seqs, now) f;
    released := 0;
    refused := '[]';
    BEGIN
        released := @schema@.queue_message_release(ids, clock);
    EXCEPTION WHEN OTHERS THEN
        IF @schema@.queue_message_meets_all(SQLSTATE, '', '') THEN
            RAISE;
        END IF;
    END;
    IF released OPERATOR(pg_catalog.<) pg_catalog.cardinality(ids) THEN
        SELECT e.released, e.refused INTO each FROM @schema@.queue_message_release_each(
            ARRAY(SELECT m.id FROM @schema@.queue_message m
                  WHERE m.id OPERATOR(pg_catalog.=) ANY (ids) AND m.lock_expires_at IS NOT NULL), clock) e;
        released := released OPERATOR(pg_catalog.+) each.released;
        refused := each.refused;
    END IF;
    SELECT a.archived, a.refused INTO dead FROM @schema@.queue_message_archive_expired(xids, seqs, now) a;
    archived := dead.archived;
    refused := refused OPERATOR(pg_catalog.||) dead.refused;
END
$body$;

-- As before, but for the handler.
CREATE OR REPLACE FUNCTION @schema@.queue_message_sweep_release_each(expired uuid[], clock timestamptz, allowed integer) RETURNS bigint
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
            IF @schema@.queue_message_meets_all(SQLSTATE, '', '') THEN
                RAISE;
            END IF;
            RAISE WARNING 'the lock of message % cannot be freed: %', one, @schema@.queue_message_why(SQLSTATE, SQLERRM);
        END;
    END LOOP;
    RETURN released;
END
$body$;

-- Frees these messages with the owner's rights, for pg_cron and for older relays. As before, but nothing that the archive raises undoes the
-- release.
CREATE OR REPLACE FUNCTION @schema@.queue_message_sweep_free(expired uuid[], clock timestamptz, OUT released bigint, OUT archived bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    allowed integer := @schema@.queue_message_attempts_allowed();
BEGIN
    BEGIN
        released := @schema@.queue_message_sweep_release(expired, clock, allowed);
    EXCEPTION WHEN OTHERS THEN
        IF @schema@.queue_message_meets_all(SQLSTATE, '', '') THEN
            RAISE;
        END IF;
        released := @schema@.queue_message_sweep_release_each(expired, clock, allowed);
    END;
    SELECT l.archived INTO archived FROM @schema@.queue_message_sweep_lost(expired, clock) l;
END
$body$;

-- What this migration adds to the privileges.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_34;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_34() p
    UNION ALL VALUES
        ('queue_message_relay', 'EXECUTE ON FUNCTION %1$I.queue_message_free_locks, %1$I.queue_message_find_expired,
            %1$I.queue_message_release, %1$I.queue_message_release_each, %1$I.queue_message_archive_expired,
            %1$I.queue_message_refused_one')
$body$;
