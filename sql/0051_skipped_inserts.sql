-- A trigger of the application's that skips an INSERT makes no message vanish: that counts as the error that it did not raise. And a fold that
-- leaves large bundles to the next call stops at its time. Ids of others under keys are unseen again.

-- As before 0050: what an application sees is what its own transaction has inserted, and no function of its own gets to see more.
CREATE OR REPLACE VIEW @schema@.queue_message_keyed WITH (security_barrier = true) AS
    SELECT k.id, k.exchange, k.routing_key, CASE WHEN k.bundle_key IS NULL THEN k.content ELSE k.content -> 0 END AS content, k.body, k.options,
        k.ordering_key, k.available_at, k.expires_at, k.bundle_key, k.coalesce_key, NULL::text AS dedup_key, NULL::integer AS dedup_seconds,
        NULL::boolean AS trigger_fires
    FROM @schema@.queue_message_keyed_row k
    WHERE k.xid = pg_current_xact_id_if_assigned() OR has_table_privilege(k.tableoid, 'SELECT');

-- Refuses an INSERT that a BEFORE trigger of the application's skipped (RETURN NULL), all of it or in part, as if it had raised an exception;
-- returns how many rows were inserted. Every function that inserts a message into the queue or the archive asks, before it believes that it did.
CREATE FUNCTION @schema@.queue_message_none_skipped(place text, asked bigint, inserted bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF inserted IS DISTINCT FROM asked THEN
        RAISE EXCEPTION 'A trigger of % skips the INSERT without an error.', place;
    END IF;
    RETURN inserted;
END
$body$;

-- As before, or none of them.
CREATE OR REPLACE FUNCTION @schema@.queue_message_archive_now(ids uuid[], result text, error_code text, error_detail text, handled_by text) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    WITH gone AS (
        DELETE FROM @schema@.queue_message m WHERE m.id = ANY (queue_message_archive_now.ids) RETURNING m.*
    ), kept AS (
        INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, available_at,
            expires_at, created_at, attempts, replay_of, result, error_code, error_detail, handled_by)
        SELECT g.xid, g.seq, g.id, g.exchange, g.routing_key, g.content, g.body, g.options, g.ordering_key, g.available_at,
            g.expires_at, g.created_at, g.attempts, g.replay_of, queue_message_archive_now.result, queue_message_archive_now.error_code,
            queue_message_archive_now.error_detail, queue_message_archive_now.handled_by
        FROM gone g
        RETURNING 1
    )
    SELECT @schema@.queue_message_none_skipped('queue_message_archive',
        (SELECT count(*) FROM gone), (SELECT count(*) FROM kept))
$body$;

-- As before, or none of it.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_archive(seqs bigint[], result text, error_code text, error_detail text, handled_by text) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    WITH gone AS (
        DELETE FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (queue_message_keyed_archive.seqs) RETURNING k.*
    ), kept AS (
        INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, available_at,
            expires_at, created_at, attempts, replay_of, result, error_code, error_detail, handled_by)
        SELECT g.xid, g.seq, g.id, g.exchange, g.routing_key, g.content, g.body, g.options, g.ordering_key, g.available_at,
            g.expires_at, g.created_at, g.attempts, g.replay_of, queue_message_keyed_archive.result, queue_message_keyed_archive.error_code,
            queue_message_keyed_archive.error_detail, queue_message_keyed_archive.handled_by
        FROM gone g
        RETURNING 1
    )
    SELECT @schema@.queue_message_none_skipped('queue_message_archive',
        (SELECT count(*) FROM gone), (SELECT count(*) FROM kept))
$body$;

-- As before, or none of it.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_discard(details jsonb, error_code text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    archived bigint;
BEGIN
    WITH gone AS (
        DELETE FROM @schema@.queue_message_keyed_row k
        WHERE k.seq = ANY (ARRAY(SELECT jsonb_object_keys(details)::bigint)) RETURNING k.*
    ), kept AS (
        INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, available_at,
            expires_at, created_at, attempts, replay_of, result, error_code, error_detail, handled_by)
        SELECT g.xid, g.seq, g.id, g.exchange, g.routing_key, g.content, g.body, g.options, g.ordering_key, g.available_at,
            g.expires_at, g.created_at, g.attempts, g.replay_of, 'discarded', error_code,
            details ->> g.seq::text, 'fold'
        FROM gone g
        RETURNING 1
    )
    SELECT @schema@.queue_message_none_skipped('queue_message_archive', (SELECT count(*) FROM gone), (SELECT count(*) FROM kept)) INTO archived;
END
$body$;

-- As before, or none of it.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_replace(due bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    details jsonb;
    ordered jsonb;
    size bigint;
    archived bigint;
BEGIN
    SELECT jsonb_object_agg(m.id, format('replaced by %s', k.id)) FILTER (WHERE m.ordering_key IS NULL),
        jsonb_object_agg(m.id, format('replaced by %s', k.id)) FILTER (WHERE m.ordering_key IS NOT NULL),
        CASE WHEN count(*) > 1 THEN sum(m.size) END INTO details, ordered, size
    FROM @schema@.queue_message_keyed_row k CROSS JOIN LATERAL @schema@.queue_message_keyed_last(k.exchange, k.coalesce_key) last
        CROSS JOIN LATERAL (
            SELECT m.id, m.seq, m.ordering_key, coalesce(pg_column_size(m.body), pg_column_size(m.content)) AS size
            FROM @schema@.queue_message m WHERE m.id = last.message_id OFFSET 0) m
    WHERE k.seq = ANY (due) AND k.bundle_key IS NULL AND m.seq = last.queue_seq;
    IF num_nonnulls(details, ordered) = 0 THEN
        RETURN;
    ELSIF size > 67108864 THEN
        RAISE EXCEPTION 'too much at once' USING ERRCODE = 'KEY04';
    END IF;
    WITH gone AS (
        DELETE FROM @schema@.queue_message m WHERE m.id = ANY (ARRAY(
            SELECT free.id FROM @schema@.queue_message free WHERE free.id = ANY (ARRAY(SELECT jsonb_object_keys(details)::uuid))
                AND free.lock_expires_at IS NULL FOR UPDATE SKIP LOCKED)) RETURNING m.*
    ), kept AS (
        INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, available_at,
            expires_at, created_at, attempts, replay_of, result, error_code, error_detail, handled_by)
        SELECT g.xid, g.seq, g.id, g.exchange, g.routing_key, g.content, g.body, g.options, g.ordering_key, g.available_at,
            g.expires_at, g.created_at, g.attempts, g.replay_of, 'discarded', 'superseded', details ->> g.id::text, 'fold'
        FROM gone g
        RETURNING 1
    )
    SELECT @schema@.queue_message_none_skipped('queue_message_archive', (SELECT count(*) FROM gone), (SELECT count(*) FROM kept)) INTO archived;
    PERFORM @schema@.queue_message_take_out(one.key::uuid, 'discarded', 'superseded', one.value, 'fold', patient => false)
    FROM jsonb_each_text(ordered) one;
END
$body$;

-- As before, all of them or none.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_send(due bigint[], fresh boolean) RETURNS TABLE (own uuid, sent uuid, number bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $body$
#variable_conflict use_variable
DECLARE
    size_limit bigint := @schema@.queue_message_setting_value('max_body_bytes')::bigint;
    made bigint;
BEGIN
    IF current_setting('relay.fold_waited', true) = 'on' THEN
        PERFORM set_config('lock_timeout', '1ms', true);
    END IF;
    RETURN QUERY
        INSERT INTO @schema@.queue_message AS m (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at,
            created_at, replay_of)
        SELECT CASE WHEN fresh THEN @schema@.queue_message_uuid() ELSE k.id END, k.exchange, k.routing_key, k.content, k.body, k.options,
            k.ordering_key, k.available_at, k.expires_at, k.created_at, CASE WHEN fresh THEN k.id END
        FROM @schema@.queue_message_keyed_row k
        WHERE k.seq = ANY (due) AND k.bundle_key IS NULL AND (k.size <= size_limit OR @schema@.queue_message_keyed_within(
            coalesce(octet_length(k.body), k.size - octet_length(k.options::text)), size_limit,
            CASE WHEN k.body IS NULL THEN 'content' ELSE 'body' END))
        ORDER BY k.seq
        RETURNING coalesce(m.replay_of, m.id), m.id, m.seq;
    GET DIAGNOSTICS made = ROW_COUNT;
    PERFORM @schema@.queue_message_none_skipped('queue_message',
        (SELECT count(*) FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (due) AND k.bundle_key IS NULL), made);
EXCEPTION WHEN OTHERS THEN
    PERFORM @schema@.queue_message_keyed_refuse(SQLSTATE, SQLERRM, fresh);
    RAISE;
END
$body$;

-- As before, all bundles or none.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold_parts(due bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    bundles jsonb;
    largest bigint;
    made bigint;
BEGIN
    SELECT jsonb_object_agg(p.seq, p.bundle), max(p.size) INTO bundles, largest FROM @schema@.queue_message_keyed_pack(due) p;
    IF bundles IS NULL THEN
        RETURN;
    END IF;
    PERFORM @schema@.queue_message_keyed_within(largest, @schema@.queue_message_setting_value('max_body_bytes')::bigint, 'content');
    BEGIN
        INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, options, ordering_key, available_at, expires_at, created_at)
        SELECT (bundles ->> k.seq::text)::uuid, min(k.exchange), min(k.routing_key), jsonb_agg(k.content -> 0 ORDER BY k.seq),
            (array_agg(k.options ORDER BY k.seq))[1], min(k.ordering_key), max(k.available_at), min(k.expires_at), min(k.created_at)
        FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (due) AND k.coalesce_key IS NULL
        GROUP BY 1 ORDER BY min(k.seq);
        GET DIAGNOSTICS made = ROW_COUNT;
        PERFORM @schema@.queue_message_none_skipped('queue_message',
            (SELECT count(DISTINCT b.value) FROM jsonb_each_text(bundles) b), made);
    EXCEPTION WHEN OTHERS THEN
        PERFORM @schema@.queue_message_keyed_refuse(SQLSTATE, SQLERRM, true);
        RAISE;
    END;
    PERFORM @schema@.queue_message_keyed_discard(jsonb_object_agg(b.key, format('sent within %s', b.value)), 'bundled')
    FROM jsonb_each_text(bundles) b;
END
$body$;

-- As before, but what it leaves to the large ones takes of its time, too.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold_some(seqs bigint[], lists integer, clock timestamptz, until timestamptz, large boolean DEFAULT true)
    RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    folded bigint := 0;
BEGIN
    FOR one IN SELECT * FROM @schema@.queue_message_keyed_split(seqs, lists) LOOP
        IF one.large AND NOT large THEN
            PERFORM @schema@.queue_message_keyed_leave(one.list, clock, cardinality(seqs));
        ELSE
            folded := folded + CASE WHEN one.cut THEN @schema@.queue_message_fold_pieces(one.list, clock, until)
                ELSE @schema@.queue_message_fold_list(one.list, clock, until) END;
        END IF;
        EXIT WHEN clock_timestamp() > until;
    END LOOP;
    RETURN folded;
END
$body$;

-- As before, or the key is not known.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM @schema@.queue_message_keys_check(NEW.bundle_key, NEW.coalesce_key, NEW.dedup_key, NEW.dedup_seconds, NEW.body);
    IF NEW.dedup_key IS NOT NULL AND NOT @schema@.queue_message_first(NEW.exchange, NEW.dedup_key, NEW.id, NEW.dedup_seconds) THEN
        RETURN NULL;
    ELSIF num_nonnulls(NEW.bundle_key, NEW.coalesce_key) = 0 THEN
        INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at)
        VALUES (NEW.id, NEW.exchange, NEW.routing_key, NEW.content, NEW.body, NEW.options, NEW.ordering_key, NEW.available_at, NEW.expires_at);
        PERFORM @schema@.queue_message_none_skipped('queue_message', 1, FOUND::integer);
        RETURN NEW;
    END IF;
    INSERT INTO @schema@.queue_message_keyed_row (seq, id, exchange, routing_key, content, body, options, ordering_key, available_at,
        expires_at, bundle_key, coalesce_key, due_at)
    VALUES (nextval(pg_get_serial_sequence(format('%I.queue_message', @schema_literal@::text), 'seq')), NEW.id, NEW.exchange, NEW.routing_key,
        CASE WHEN NEW.bundle_key IS NULL OR NEW.content IS NULL THEN NEW.content ELSE jsonb_build_array(NEW.content) END,
        NEW.body, NEW.options, NEW.ordering_key, NEW.available_at, NEW.expires_at, NEW.bundle_key, NEW.coalesce_key,
        coalesce(NEW.available_at, now() + CASE WHEN NEW.bundle_key IS NULL THEN '0'::interval
            ELSE make_interval(secs => coalesce(
                (SELECT s.value FROM @schema@.queue_message_setting s WHERE s.name = 'bundle_seconds')::double precision, 1)) END));
    PERFORM @schema@.queue_message_none_skipped('queue_message_keyed_row', 1, FOUND::integer);
    RETURN NEW;
END
$body$;

-- As before, or it fails.
CREATE OR REPLACE FUNCTION @schema@.queue_message_schedule_send(one @schema@.queue_message_schedule, tick timestamptz, clock timestamptz) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $body$
#variable_conflict use_variable
DECLARE
    told jsonb := jsonb_strip_nulls(jsonb_build_object('x-relay-schedule', one.name,
        'x-relay-tick', to_char(tick, 'YYYY-MM-DD"T"HH24:MI:SS"Z"')));
    made uuid;
BEGIN
    INSERT INTO @schema@.queue_message (exchange, routing_key, content, options, ordering_key, expires_at)
    VALUES (one.exchange, one.routing_key, one.content,
        CASE WHEN jsonb_typeof(one.options) = 'object' AND jsonb_typeof(coalesce(nullif(one.options -> 'headers', 'null'), '{}')) = 'object'
            THEN one.options || jsonb_build_object('headers', told || coalesce(nullif(one.options -> 'headers', 'null'), '{}'))
            ELSE one.options END,
        one.ordering_key, clock + one.expires_after)
    RETURNING id INTO made;
    PERFORM @schema@.queue_message_none_skipped('queue_message', 1, FOUND::integer);
    RETURN made;
END
$body$;

-- As before, or nothing counts as replayed.
CREATE OR REPLACE FUNCTION @schema@.queue_message_replay_at(
    message uuid, xid xid8, seq bigint, same_id boolean DEFAULT false, by text DEFAULT session_user) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $body$
#variable_conflict use_variable
DECLARE
    old record;
    new_id uuid := CASE WHEN same_id THEN message ELSE @schema@.queue_message_uuid() END;
BEGIN
    SELECT * INTO old FROM (SELECT * FROM @schema@.queue_message_archive a WHERE a.id = message OFFSET 0) a
    WHERE (a.xid, a.seq) = (queue_message_replay_at.xid, queue_message_replay_at.seq);
    IF EXISTS (SELECT FROM @schema@.queue_message m WHERE m.id = message) AND (same_id OR old.id IS NULL) THEN
        RAISE EXCEPTION 'Message % is still in the queue; it goes out from there.', message USING ERRCODE = 'object_in_use';
    ELSIF old.id IS NULL THEN
        RAISE EXCEPTION 'No archived message has the id %.', message || coalesce(format('@%s/%s', xid, seq), '') USING ERRCODE = 'no_data_found';
    ELSIF old.error_code = 'content_unprintable' THEN
        PERFORM @schema@.queue_message_refuse_unprintable(message);
    END IF;
    INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, expires_at, replay_of)
    VALUES (new_id, old.exchange, old.routing_key, old.content, old.body, old.options, old.ordering_key,
            CASE WHEN old.expires_at > now() AND isfinite(old.expires_at) THEN old.expires_at END, message);
    PERFORM @schema@.queue_message_none_skipped('queue_message', 1, FOUND::integer);
    INSERT INTO @schema@.queue_message_audit (acted_by, action, subject, became)
    VALUES (@schema@.queue_message_signed(by), 'replay', message, jsonb_build_object('id', new_id, 'place', format('%s/%s', old.xid, old.seq)));
    IF old.result IN ('rejected', 'failed', 'lock_expired') THEN
        INSERT INTO @schema@.queue_message_dead_ack (xid, seq, acknowledged_by, note)
        VALUES (old.xid, old.seq, @schema@.queue_message_signed(by), 'replayed as ' || new_id) ON CONFLICT DO NOTHING;
    END IF;
    RETURN new_id;
END
$body$;

-- As before, all of them or none.
CREATE OR REPLACE FUNCTION @schema@.queue_message_replay_rows(
    job text, xids xid8[], seqs bigint[], ids uuid[], exchanges text[], routing_keys text[], contents text[], bodies bytea[], options text[],
    ordering_keys text[], expires_ats timestamptz[], same_id boolean DEFAULT false
) RETURNS TABLE (xid xid8, seq bigint, replayed_as uuid)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    WITH given AS (
        SELECT DISTINCT ON (entry.xid, entry.seq) entry.*
        FROM unnest(xids, seqs, ids, exchanges, routing_keys, contents, bodies, options, ordering_keys, expires_ats) WITH ORDINALITY
            AS entry (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, expires_at, place)
        ORDER BY entry.xid, entry.seq, entry.place
    ), fresh AS (
        INSERT INTO @schema@.queue_message_replay_ledger AS ledger (job, xid, seq, id)
        SELECT queue_message_replay_rows.job, g.xid, g.seq, CASE WHEN same_id THEN g.id ELSE @schema@.queue_message_uuid() END
        FROM given g ORDER BY g.place
        ON CONFLICT DO NOTHING RETURNING ledger.xid, ledger.seq, ledger.id
    ), made AS (
        -- The numbers are taken after the sort.
        INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, expires_at, replay_of)
        SELECT f.id, g.exchange, g.routing_key, g.content::jsonb, g.body, g.options::jsonb, g.ordering_key,
            CASE WHEN g.expires_at > now() THEN g.expires_at END, g.id
        FROM fresh f JOIN given g ON (g.xid, g.seq) = (f.xid, f.seq)
        -- A lake has no content of what PostgreSQL could not print.
        WHERE g.content IS NOT NULL OR @schema@.queue_message_refuse_unprintable(g.id)
        ORDER BY g.place RETURNING 1
    ), noted AS (
        INSERT INTO @schema@.queue_message_audit (action, subject, became)
        SELECT 'replay_job', queue_message_replay_rows.job, jsonb_build_object('messages', count(*)) FROM fresh HAVING count(*) > 0
    ), answered AS (
        INSERT INTO @schema@.queue_message_dead_ack (xid, seq, acknowledged_by, note)
        SELECT d.xid, d.seq, session_user, 'replayed as ' || f.id
        FROM fresh f JOIN given g ON (g.xid, g.seq) = (f.xid, f.seq)
            JOIN @schema@.queue_message_dead d ON d.id = g.id AND (d.xid, d.seq) = (g.xid, g.seq)
        ON CONFLICT DO NOTHING
    )
    SELECT f.xid, f.seq, f.id FROM fresh f JOIN given g ON (g.xid, g.seq) = (f.xid, f.seq)
    WHERE (SELECT @schema@.queue_message_none_skipped('queue_message',
        (SELECT count(*) FROM fresh), (SELECT count(*) FROM made))) IS NOT NULL
    ORDER BY g.place
$body$;

-- As before, or the row is refused.
CREATE OR REPLACE FUNCTION @schema@.queue_message_request_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET bytea_output = 'hex' SET extra_float_digits = 1 AS $body$
#variable_conflict use_variable
DECLARE
    asked record;
    whole jsonb := to_jsonb(NEW);
    name text := @schema@.queue_message_request_name(TG_RELID);
    key jsonb := @schema@.queue_message_request_key(TG_RELID, whole);
    message record;
BEGIN
    SELECT r.* INTO asked FROM @schema@.queue_message_request r WHERE r.relation = TG_RELID;
    IF asked.id IS NULL THEN
        PERFORM @schema@.queue_message_request_refuse(TG_RELID, key, 'its table is named in no inbox; run queue_message_request() for it again.');
    ELSIF jsonb_populate_record(NEW, @schema@.queue_message_request_blank(asked.answers || asked.error)) OPERATOR(pg_catalog.*<>) NEW THEN
        PERFORM @schema@.queue_message_request_refuse(TG_RELID, key, format(
            'an INSERT leaves %s empty; the settle of its request fills them.', array_to_string(asked.answers || asked.error, ', ')));
    END IF;
    INSERT INTO @schema@.queue_message (exchange, content, options)
    VALUES (name, whole - (asked.answers || asked.own || coalesce(asked.error, asked.answers[1])),
        jsonb_build_object('headers', jsonb_build_object('x-relay-request', name)))
    RETURNING * INTO message;
    PERFORM @schema@.queue_message_none_skipped('queue_message', 1, FOUND::integer);
    -- A row that had this key before is gone: the answer that was asked for then must not find this one.
    -- Locked by a statement of its own, as the next one then sees what a replay has added that committed meanwhile.
    PERFORM FROM @schema@.queue_message_request_row w WHERE w.key = key AND w.request = asked.id ORDER BY w.xid, w.seq FOR UPDATE;
    DELETE FROM @schema@.queue_message_request_row w WHERE w.key = key AND w.request = asked.id;
    INSERT INTO @schema@.queue_message_request_row (message, xid, seq, said, request, key)
    VALUES (message.id, message.xid, message.seq, @schema@.queue_message_request_said(message.exchange, message.routing_key, message.content,
        message.body, message.options), asked.id, key);
    RETURN NULL;
END
$body$;

-- As before, or its queue brings it again.
CREATE OR REPLACE FUNCTION @schema@.queue_message_reject_delivery(
    queue text, message_id text, exchange text, routing_key text, payload bytea, code text, sentence text, handled_by text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    -- Whatever a client sent, the queue must be rid of it.
    message_id := @schema@.queue_message_cut(message_id, 255, hashed => true);
    exchange := @schema@.queue_message_cut(exchange, 255);
    routing_key := @schema@.queue_message_cut(routing_key, 255);
    sentence := @schema@.queue_message_cut(sentence, 4000);
    -- As with every delivery: it is acknowledged after the COMMIT.
    PERFORM set_config('synchronous_commit', 'on', true);
    INSERT INTO @schema@.queue_message_received (consumer, message_id) VALUES (queue, message_id) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, created_at, attempts,
        result, error_code, error_detail, handled_by)
    VALUES (pg_current_xact_id(), nextval(pg_get_serial_sequence(format('%I.queue_message', @schema_literal@::text), 'seq')),
        @schema@.queue_message_uuid(), exchange, routing_key, '{}', payload,
        jsonb_build_object('headers', jsonb_build_object('x-relay-queue', queue, 'x-relay-message-id', message_id)), now(), 0,
        'rejected', code, sentence, handled_by);
    PERFORM @schema@.queue_message_none_skipped('queue_message_archive', 1, FOUND::integer);
    RETURN true;
END
$body$;

-- As before, or the transaction fails.
CREATE OR REPLACE FUNCTION @schema@.queue_message_adoption_reject(given anyelement, mapped @schema@.queue_message_mapped, problem text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    content jsonb;
    body bytea;
BEGIN
    BEGIN
        content := to_jsonb(given);
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        content := '{}';
        body := convert_to(given::text, 'UTF8');
    END;
    INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, created_at, attempts, handled_by,
        result, error_code, error_detail)
    VALUES (pg_current_xact_id(), nextval(pg_get_serial_sequence(format('%I.queue_message', @schema_literal@::text), 'seq')),
        coalesce((mapped).id, CASE WHEN content ->> 'id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN (content ->> 'id')::uuid END,
            @schema@.queue_message_uuid()), coalesce((mapped).exchange, ''), coalesce((mapped).routing_key, ''), content,
        body, '"the row of another outbox"', now(), 0, 'relay adopt', 'rejected', 'refused', problem);
    PERFORM @schema@.queue_message_none_skipped('queue_message_archive', 1, FOUND::integer);
END
$body$;
