-- One message that cannot be sent does not hold up the others: the fold of keys goes on without it. What an application's session computes
-- does not depend on that session's search_path.

-- As before, whatever stands before pg_catalog on the path of who inserts: another lane would be another order.
CREATE OR REPLACE FUNCTION @schema@.queue_message_lane_of(ordering_key text) RETURNS smallint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN (('x' OPERATOR(pg_catalog.||) pg_catalog.substr(pg_catalog.md5(ordering_key), 1, 8))::bit(32)::bigint OPERATOR(pg_catalog.&) 63)::smallint;
END
$$;

-- The key whose turn failed, with why; no more than one row of each key has last_error.
CREATE INDEX queue_message_keyed_row_failing_idx ON @schema@.queue_message_keyed_row (due_at) WHERE last_error IS NOT NULL;
CREATE VIEW @schema@.queue_message_keyed_failing AS
    SELECT k.exchange, coalesce(k.coalesce_key, k.bundle_key) AS key, k.id, k.due_at AS next_try_at, k.last_error AS why
    FROM @schema@.queue_message_keyed_row k WHERE k.last_error IS NOT NULL;
COMMENT ON VIEW @schema@.queue_message_keyed_failing IS 'Keys whose messages could not be sent to the queue, why, and when they are tried again.';

-- Where is message X? As before; of what waits under a key also why it could not be sent.
CREATE OR REPLACE VIEW @schema@.queue_message_state AS
    SELECT m.id,
        CASE WHEN m.lock_expires_at IS NOT NULL THEN 'locked' WHEN m.available_at > now() THEN 'delayed' ELSE 'ready' END AS state,
        m.exchange, m.routing_key, m.ordering_key, m.attempts, m.created_at, m.available_at, m.expires_at, m.lock_expires_at,
        coalesce(r.name, CASE WHEN m.locked_by = 0 THEN 'lock set by hand' WHEN m.locked_by IS NOT NULL THEN 'relay ' || m.locked_by END) AS handled_by,
        NULL::text AS error_code, m.last_error AS error_detail, m.replay_of,
        NULL::timestamptz AS claimed_at, NULL::timestamptz AS published_at, NULL::timestamptz AS confirmed_at, NULL::timestamptz AS archived_at,
        m.xid, m.seq, NULL::xid8 AS archived_xid
    FROM @schema@.queue_message m LEFT JOIN @schema@.queue_message_relay r ON r.id = m.locked_by
    UNION ALL
    SELECT k.id, 'keyed', k.exchange, k.routing_key, k.ordering_key, k.attempts, k.created_at, k.available_at, k.expires_at, NULL, NULL, NULL,
        concat_ws('; ', format('due at %s', k.due_at), k.last_error), k.replay_of, NULL, NULL, NULL, NULL, k.xid, k.seq, NULL
    FROM @schema@.queue_message_keyed_row k
    UNION ALL
    SELECT a.id, a.result, a.exchange, a.routing_key, a.ordering_key, a.attempts, a.created_at, a.available_at, a.expires_at, NULL,
        a.handled_by, a.error_code, a.error_detail, a.replay_of, a.claimed_at, a.published_at, a.confirmed_at, a.archived_at, a.xid, a.seq, a.archived_xid
    FROM @schema@.queue_message_archive a;

-- Why something failed, in one line.
CREATE FUNCTION @schema@.queue_message_why(state text, words text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT coalesce(@schema@.queue_message_refusal(state, words), @schema@.queue_message_one_line(words, 1000))
$body$;

-- Whether an error would meet every message alike: a server in trouble, a lock, the archive without its day. place: the table that it names.
CREATE FUNCTION @schema@.queue_message_meets_all(state text, place text, constraint_name text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT left(state, 2) IN ('40', '53', '55', '57', '58', 'XX')
        OR state = '23514' AND starts_with(place, 'queue_message') AND coalesce(constraint_name, '') = ''
$body$;

-- Of each coalesce_key sends the newest of these, in place of what it sent before if nobody has claimed that; the older ones are archived.
-- What was inserted before the last one that was sent, and came late, is older too; the times are compared as well, as somebody may have
-- begun the numbers anew.
CREATE FUNCTION @schema@.queue_message_fold_versions(due bigint[], clock timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    winner uuid;
BEGIN
    FOR one IN
        SELECT k.exchange, k.coalesce_key, array_agg(k.seq ORDER BY k.seq DESC) AS seqs, (array_agg(k.id ORDER BY k.seq DESC))[1] AS id,
            min(last.message_id::text)::uuid AS last_id,
            coalesce(max(k.seq) < min(last.seq) AND max(k.created_at) <= min(last.folded_at), false) AS late
        FROM @schema@.queue_message_keyed_row k LEFT JOIN @schema@.queue_message_coalesced last USING (exchange, coalesce_key)
        WHERE k.seq = ANY (due) GROUP BY k.exchange, k.coalesce_key ORDER BY max(k.seq)
    LOOP
        winner := CASE WHEN one.late THEN one.last_id ELSE one.id END;
        PERFORM @schema@.queue_message_keyed_archive(CASE WHEN one.late THEN one.seqs ELSE one.seqs[2:] END,
            'discarded', 'superseded', format('replaced by %s', winner), 'fold');
        CONTINUE WHEN one.late;
        PERFORM @schema@.queue_message_take_out(
            one.last_id, 'discarded', 'superseded', format('replaced by %s', winner), 'fold', patient => false);
        IF @schema@.queue_message_keyed_send(one.seqs[1]) THEN
            INSERT INTO @schema@.queue_message_coalesced (exchange, coalesce_key, message_id, seq, folded_at)
            VALUES (one.exchange, one.coalesce_key, winner, one.seqs[1], greatest(clock, clock_timestamp()))
            ON CONFLICT ON CONSTRAINT queue_message_coalesced_pkey
            DO UPDATE SET message_id = excluded.message_id, seq = excluded.seq, folded_at = excluded.folded_at;
        END IF;
    END LOOP;
END
$body$;

-- Sends these parts of bundles, in the order in which they were inserted; where the next one has other terms, or is beyond the number or the
-- bytes of a bundle, another begins.
CREATE FUNCTION @schema@.queue_message_fold_parts(due bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    number_limit integer := @schema@.queue_message_setting_value('bundle_max_messages')::integer;
    size_limit bigint := least(@schema@.queue_message_setting_value('bundle_max_bytes')::bigint,
                               @schema@.queue_message_setting_value('max_body_bytes')::bigint);
    parts bigint[] := '{}';
    size bigint := 0;
    terms jsonb;
    one record;
BEGIN
    -- Each part is a list of one, so its length counts the comma and the space, or the brackets.
    FOR one IN
        SELECT k.seq, octet_length(k.content::text) AS size, jsonb_build_array(k.bundle_key, k.routing_key, k.exchange, k.ordering_key,
            k.expires_at, @schema@.queue_message_untraced(k.options)) AS terms
        FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (due) ORDER BY k.bundle_key, k.routing_key, k.exchange, k.seq
    LOOP
        IF cardinality(parts) > 0 AND (terms <> one.terms OR cardinality(parts) >= number_limit OR size + one.size > size_limit) THEN
            PERFORM @schema@.queue_message_bundle(parts);
            parts := '{}';
            size := 0;
        END IF;
        parts := parts || one.seq;
        size := size + one.size;
        terms := one.terms;
    END LOOP;
    IF cardinality(parts) > 0 THEN
        PERFORM @schema@.queue_message_bundle(parts);
    END IF;
END
$body$;

-- Notes why a key could not be sent, and lets it wait for as long again as it has waited, from a second to the longest backoff.
CREATE FUNCTION @schema@.queue_message_keyed_failed(seqs bigint[], clock timestamptz, problem text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    longest interval := make_interval(secs => @schema@.queue_message_setting_value('backoff_max')::double precision);
    waited interval := (SELECT clock - min(coalesce(k.available_at, k.created_at)) FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (seqs));
BEGIN
    UPDATE @schema@.queue_message_keyed_row k
    SET due_at = clock + least(greatest(waited, '1 second'), longest), last_error = CASE WHEN k.seq = seqs[1] THEN problem END
    WHERE k.seq = ANY (seqs);
    RAISE WARNING 'messages with a key cannot be sent to the queue, and are tried again: %', problem;
END
$body$;

-- Sends what is due under each key by itself; returns how many messages stay because their key could not be sent.
CREATE FUNCTION @schema@.queue_message_fold_each(versions bigint[], parts bigint[], clock timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    failed bigint := 0;
    place text;
    named text;
BEGIN
    -- Versions of one coalesce_key may differ in their routing key.
    FOR one IN
        SELECT array_agg(k.seq ORDER BY k.seq) AS seqs, k.bundle_key IS NOT NULL AS bundled
        FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (versions || parts)
        GROUP BY k.exchange, k.coalesce_key, k.bundle_key, CASE WHEN k.bundle_key IS NOT NULL THEN k.routing_key END
        ORDER BY bundled, max(k.seq)
    LOOP
        BEGIN
            IF one.bundled THEN
                PERFORM @schema@.queue_message_fold_parts(one.seqs);
            ELSE
                PERFORM @schema@.queue_message_fold_versions(one.seqs, clock);
            END IF;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS place = TABLE_NAME, named = CONSTRAINT_NAME;
            IF @schema@.queue_message_meets_all(SQLSTATE, place, named) THEN
                RAISE;
            END IF;
            PERFORM @schema@.queue_message_keyed_failed(one.seqs, clock, @schema@.queue_message_why(SQLSTATE, SQLERRM));
            failed := failed + cardinality(one.seqs);
        END;
    END LOOP;
    RETURN failed;
END
$body$;

-- As before, but a key that cannot be sent, because a trigger of the application's refuses it, stays and is tried again later; the others are
-- sent. All are tried at once, and each key by itself only where that fails. A bundle_key is due with its oldest part, and takes along what is
-- not meant for later. Of a coalesce_key the newest come first, so that a limit never lets an older one through.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold(now timestamptz DEFAULT NULL, most integer DEFAULT 10000,
    OUT folded bigint, OUT next_at timestamptz, OUT superseded bigint, OUT bundled bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    versions bigint[];
    parts bigint[];
    place text;
    named text;
BEGIN
    folded := 0;
    IF pg_try_advisory_xact_lock(724017729, hashtext(@schema_literal@)) THEN
        versions := ARRAY(SELECT k.seq FROM @schema@.queue_message_keyed_row k WHERE k.coalesce_key IS NOT NULL AND k.due_at <= clock
                          ORDER BY k.seq DESC LIMIT most FOR UPDATE SKIP LOCKED);
        parts := ARRAY(
            SELECT k.seq FROM @schema@.queue_message_keyed_row k
            WHERE k.bundle_key IS NOT NULL AND (k.available_at IS NULL OR k.available_at <= clock)
              AND (k.bundle_key, k.routing_key, k.exchange) IN (
                  SELECT d.bundle_key, d.routing_key, d.exchange FROM @schema@.queue_message_keyed_row d
                  WHERE d.bundle_key IS NOT NULL AND d.due_at <= clock)
            ORDER BY k.seq LIMIT most FOR UPDATE SKIP LOCKED);
        folded := cardinality(versions) + cardinality(parts);
        BEGIN
            PERFORM @schema@.queue_message_fold_versions(versions, clock);
            PERFORM @schema@.queue_message_fold_parts(parts);
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS place = TABLE_NAME, named = CONSTRAINT_NAME;
            IF @schema@.queue_message_meets_all(SQLSTATE, place, named) THEN
                RAISE;
            END IF;
            folded := folded - @schema@.queue_message_fold_each(versions, parts, clock);
        END;
    END IF;
    SELECT min(k.due_at) INTO next_at FROM @schema@.queue_message_keyed_row k;
    superseded := 0;
    bundled := 0;
    IF folded > 0 THEN
        SELECT count(*) FILTER (WHERE a.error_code = 'superseded'), count(*) FILTER (WHERE a.error_code = 'bundled') INTO superseded, bundled
        FROM @schema@.queue_message_archive a WHERE a.archived_xid = pg_current_xact_id();
    END IF;
END
$body$;
DROP FUNCTION @schema@.queue_message_fold_newest(timestamptz, integer);
DROP FUNCTION @schema@.queue_message_fold_bundles(timestamptz, integer);

-- As before, but what a trigger of the application's says of a schedule's message is told as well.
CREATE OR REPLACE FUNCTION @schema@.queue_message_run_schedules(now timestamptz DEFAULT NULL, OUT inserted int, OUT next_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    one @schema@.queue_message_schedule;
BEGIN
    inserted := 0;
    -- Those that owe each tick last: there may be many, and nobody waits behind them.
    FOR one IN SELECT s.* FROM @schema@.queue_message_schedule s WHERE s.next_at <= clock
               ORDER BY s.missed = 'all', s.next_at, s.name FOR UPDATE SKIP LOCKED LOOP
        CONTINUE WHEN one.missed = 'all' AND inserted >= 1000;
        BEGIN
            inserted := inserted + @schema@.queue_message_schedule_due(one, clock, greatest(1000 - inserted, 1));
        EXCEPTION WHEN OTHERS THEN
            IF @schema@.queue_message_meets_all(SQLSTATE, '', '') THEN
                RAISE;
            END IF;
            PERFORM @schema@.queue_message_schedule_failed(one, clock, @schema@.queue_message_why(SQLSTATE, SQLERRM));
        END;
    END LOOP;
    SELECT min(s.next_at) INTO next_at FROM @schema@.queue_message_schedule s;
END
$body$;

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_26;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text) LANGUAGE sql IMMUTABLE AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_26() p
    UNION ALL
    VALUES
        ('queue_message_relay', 'SELECT ON %1$I.queue_message_keyed_failing'),
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_keyed_failing')
$body$;
