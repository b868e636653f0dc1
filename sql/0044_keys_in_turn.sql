-- A flood of keys slows no fold and holds up no other key: many keys are sent at once, those that were due first before the others, for two seconds
-- a call. What waits with them: a replay counts for one archived message, and options have a limit as text.

-- By these a fold finds the newest of a key and the parts of a bundle in their order, however many others wait.
DROP INDEX @schema@.queue_message_keyed_row_bundle_idx;
CREATE INDEX queue_message_keyed_row_bundle_idx ON @schema@.queue_message_keyed_row (bundle_key, routing_key, exchange, seq)
    WHERE bundle_key IS NOT NULL;
CREATE INDEX queue_message_keyed_row_coalesce_idx ON @schema@.queue_message_keyed_row (coalesce_key, exchange, seq)
    WHERE coalesce_key IS NOT NULL;

-- Locks and returns what a fold takes: the messages that were due first; of each of their coalesce keys also the newest that is due, so that no
-- limit lets an older one through; and with bundle keys what else is there, but what waits for a later time. No more than twice as many as asked for.
CREATE FUNCTION @schema@.queue_message_keyed_due(clock timestamptz, most integer) RETURNS bigint[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    WITH oldest AS MATERIALIZED (
        SELECT k.seq, k.exchange, k.coalesce_key, k.bundle_key, k.routing_key, k.due_at FROM @schema@.queue_message_keyed_row k
        WHERE k.due_at <= queue_message_keyed_due.clock ORDER BY k.due_at LIMIT queue_message_keyed_due.most FOR UPDATE SKIP LOCKED
    ), newest AS (
        SELECT version.seq FROM (SELECT DISTINCT o.coalesce_key, o.exchange FROM oldest o WHERE o.coalesce_key IS NOT NULL) key
        CROSS JOIN LATERAL (
            SELECT k.seq FROM @schema@.queue_message_keyed_row k
            WHERE k.coalesce_key = key.coalesce_key AND k.exchange = key.exchange AND k.due_at <= queue_message_keyed_due.clock
            ORDER BY k.seq DESC LIMIT 1 FOR UPDATE SKIP LOCKED) version
    ), parts AS (
        SELECT part.seq FROM (
            SELECT o.bundle_key, o.routing_key, o.exchange FROM oldest o
            WHERE o.bundle_key IS NOT NULL GROUP BY 1, 2, 3 ORDER BY min(o.due_at)) key
        CROSS JOIN LATERAL (
            SELECT k.seq FROM @schema@.queue_message_keyed_row k
            WHERE k.bundle_key = key.bundle_key AND k.routing_key = key.routing_key AND k.exchange = key.exchange
                AND (k.available_at IS NULL OR k.available_at <= queue_message_keyed_due.clock)
            ORDER BY k.seq LIMIT queue_message_keyed_due.most FOR UPDATE SKIP LOCKED) part
        LIMIT queue_message_keyed_due.most
    )
    SELECT ARRAY(SELECT o.seq FROM oldest o WHERE o.coalesce_key IS NOT NULL UNION SELECT n.seq FROM newest n UNION ALL SELECT p.seq FROM parts p)
$body$;

-- Cuts these into so many lists at most, of about as many keys each, those that were due first in the first one. No key is in two of them, and a
-- list has the order of the inserts. Versions of one coalesce_key may differ in their routing key.
CREATE FUNCTION @schema@.queue_message_keyed_split(seqs bigint[], lists integer) RETURNS SETOF bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    RETURN QUERY WITH key AS (
        SELECT array_agg(k.seq) AS seqs, row_number() OVER (ORDER BY min(k.due_at), min(k.seq)) - 1 AS place, count(*) OVER () AS keys
        FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (seqs)
        GROUP BY k.exchange, k.coalesce_key, k.bundle_key, CASE WHEN k.bundle_key IS NOT NULL THEN k.routing_key END
    )
    SELECT array_agg(one.seq ORDER BY one.seq) FROM key CROSS JOIN unnest(key.seqs) AS one (seq)
    GROUP BY key.place * lists / key.keys ORDER BY min(key.place);
END
$body$;

-- Moves what waits under keys to the archive as discarded; details has a sentence for each number.
CREATE FUNCTION @schema@.queue_message_keyed_discard(details jsonb, error_code text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    WITH gone AS (
        DELETE FROM @schema@.queue_message_keyed_row k
        WHERE k.seq = ANY (ARRAY(SELECT jsonb_object_keys(details)::bigint)) RETURNING k.*
    )
    INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, available_at,
        expires_at, created_at, attempts, replay_of, result, error_code, error_detail, handled_by)
    SELECT g.xid, g.seq, g.id, g.exchange, g.routing_key, g.content, g.body, g.options, g.ordering_key, g.available_at,
        g.expires_at, g.created_at, g.attempts, g.replay_of, 'discarded', error_code,
        details ->> g.seq::text, 'fold'
    FROM gone g;
END
$body$;

-- Tells a fold what an INSERT into the queue met: KEY01 is an id that somebody else has, or inserts in a transaction that has not ended; KEY02 is
-- what the queue refuses, with the reason. Returns for all else.
CREATE FUNCTION @schema@.queue_message_keyed_refuse(state text, words text, fresh boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    refusal text := @schema@.queue_message_refusal(state, words);
BEGIN
    IF NOT fresh AND state IN ('23505', '55P03') THEN
        RAISE EXCEPTION 'an id is taken' USING ERRCODE = 'KEY01';
    ELSIF refusal IS NOT NULL THEN
        RAISE EXCEPTION '%', refusal USING ERRCODE = 'KEY02';
    END IF;
END
$body$;

-- Enqueues the versions among these as they stand, fresh: with new ids; returns with which id and number each did. An id that an open transaction
-- inserts is waited for once in a fold: to wait for thousands would hold up all keys.
DROP FUNCTION @schema@.queue_message_keyed_send(bigint);
CREATE FUNCTION @schema@.queue_message_keyed_send(due bigint[], fresh boolean) RETURNS TABLE (own uuid, sent uuid, number bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $body$
#variable_conflict use_variable
BEGIN
    IF current_setting('relay.fold_waited', true) = 'on' THEN
        PERFORM set_config('lock_timeout', '1ms', true);
    END IF;
    RETURN QUERY
        INSERT INTO @schema@.queue_message AS m (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at,
            created_at, replay_of)
        SELECT CASE WHEN fresh THEN @schema@.queue_message_uuid() ELSE k.id END, k.exchange, k.routing_key, k.content, k.body, k.options,
            k.ordering_key, k.available_at, k.expires_at, k.created_at, CASE WHEN fresh THEN k.id END
        FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (due) AND k.bundle_key IS NULL ORDER BY k.seq
        RETURNING coalesce(m.replay_of, m.id), m.id, m.seq;
EXCEPTION WHEN OTHERS THEN
    PERFORM @schema@.queue_message_keyed_refuse(SQLSTATE, SQLERRM, fresh);
    RAISE;
END
$body$;

-- What was sent last under a coalesce_key.
CREATE FUNCTION @schema@.queue_message_keyed_last(exchange text, coalesce_key text) RETURNS SETOF @schema@.queue_message_coalesced
LANGUAGE sql STABLE ROWS 1 AS $body$
    SELECT c.* FROM @schema@.queue_message_coalesced c
    WHERE c.exchange = queue_message_keyed_last.exchange AND c.coalesce_key = queue_message_keyed_last.coalesce_key OFFSET 0
$body$;

-- Takes what was sent last under the keys of these versions out of the queue, if nobody has claimed it: they replace it. It is known by its number:
-- another row with its id is left alone. Nobody's lock is waited for. What has an ordering_key goes one by one, as its key may have to be woken.
CREATE FUNCTION @schema@.queue_message_keyed_replace(due bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    details jsonb;
    ordered jsonb;
BEGIN
    SELECT jsonb_object_agg(m.id, format('replaced by %s', k.id)) FILTER (WHERE m.ordering_key IS NULL),
        jsonb_object_agg(m.id, format('replaced by %s', k.id)) FILTER (WHERE m.ordering_key IS NOT NULL) INTO details, ordered
    FROM @schema@.queue_message_keyed_row k CROSS JOIN LATERAL @schema@.queue_message_keyed_last(k.exchange, k.coalesce_key) last
        CROSS JOIN LATERAL (SELECT m.id, m.seq, m.ordering_key FROM @schema@.queue_message m WHERE m.id = last.message_id OFFSET 0) m
    WHERE k.seq = ANY (due) AND k.bundle_key IS NULL AND m.seq = last.queue_seq;
    IF num_nonnulls(details, ordered) = 0 THEN
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM @schema@.queue_message m WHERE m.id = ANY (ARRAY(
            SELECT free.id FROM @schema@.queue_message free WHERE free.id = ANY (ARRAY(SELECT jsonb_object_keys(details)::uuid))
                AND free.lock_expires_at IS NULL FOR UPDATE SKIP LOCKED)) RETURNING m.*
    )
    INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, available_at,
        expires_at, created_at, attempts, replay_of, result, error_code, error_detail, handled_by)
    SELECT g.xid, g.seq, g.id, g.exchange, g.routing_key, g.content, g.body, g.options, g.ordering_key, g.available_at,
        g.expires_at, g.created_at, g.attempts, g.replay_of, 'discarded', 'superseded', details ->> g.id::text, 'fold'
    FROM gone g;
    PERFORM @schema@.queue_message_take_out(one.key::uuid, 'discarded', 'superseded', one.value, 'fold', patient => false)
    FROM jsonb_each_text(ordered) one;
END
$body$;

-- Archives what a newer version replaces: the older ones of each coalesce_key, and all of what was inserted before the last that was sent, and
-- came late. The times are compared as well, as somebody may have begun the numbers anew.
CREATE FUNCTION @schema@.queue_message_keyed_supersede(due bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM @schema@.queue_message_keyed_discard(
        jsonb_object_agg(v.seq, format('replaced by %s', CASE WHEN v.late THEN v.last_id ELSE v.newest_id END)), 'superseded')
    FROM (
        SELECT k.seq, max(k.seq) OVER key AS newest, first_value(k.id) OVER (PARTITION BY k.exchange, k.coalesce_key ORDER BY k.seq DESC) AS newest_id,
            last.message_id AS last_id,
            coalesce(max(k.seq) OVER key < last.seq AND max(k.created_at) OVER key <= last.folded_at, false) AS late
        FROM @schema@.queue_message_keyed_row k LEFT JOIN LATERAL @schema@.queue_message_keyed_last(k.exchange, k.coalesce_key) last ON true
        WHERE k.seq = ANY (due) AND k.bundle_key IS NULL
        WINDOW key AS (PARTITION BY k.exchange, k.coalesce_key)) v
    WHERE v.late OR v.seq < v.newest HAVING count(*) > 0;
END
$body$;

-- Of each coalesce_key sends the newest of these, in place of what it sent before if nobody has claimed that.
DROP FUNCTION @schema@.queue_message_fold_versions(bigint[], timestamptz);
CREATE FUNCTION @schema@.queue_message_fold_versions(due bigint[], clock timestamptz, fresh boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM @schema@.queue_message_keyed_supersede(due);
    PERFORM @schema@.queue_message_keyed_replace(due);
    INSERT INTO @schema@.queue_message_coalesced (exchange, coalesce_key, message_id, queue_seq, seq, folded_at)
    SELECT k.exchange, k.coalesce_key, put.sent, put.number, k.seq, greatest(clock, clock_timestamp())
    FROM @schema@.queue_message_keyed_send(due, fresh) put CROSS JOIN LATERAL (
        SELECT k.exchange, k.coalesce_key, k.seq FROM @schema@.queue_message_keyed_row k WHERE k.id = put.own OFFSET 0) k
    ON CONFLICT ON CONSTRAINT queue_message_coalesced_pkey DO UPDATE
    SET message_id = excluded.message_id, queue_seq = excluded.queue_seq, seq = excluded.seq, folded_at = excluded.folded_at;
    IF fresh THEN
        PERFORM @schema@.queue_message_keyed_discard(jsonb_object_agg(k.seq, format('replaced by %s', last.message_id)), 'superseded')
        FROM @schema@.queue_message_keyed_row k CROSS JOIN LATERAL @schema@.queue_message_keyed_last(k.exchange, k.coalesce_key) last
        WHERE k.seq = ANY (due);
    ELSE
        DELETE FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (due) AND k.bundle_key IS NULL;
    END IF;
END
$body$;

-- In which message each of these parts is sent, by number: in the order of their inserts, and where the next one has other terms, or is beyond the
-- number or the bytes of a bundle, another begins. Each part is a list of one, so its length counts the comma and the space, or the brackets.
CREATE FUNCTION @schema@.queue_message_keyed_pack(due bigint[]) RETURNS TABLE (seq bigint, bundle uuid)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    number_limit integer := @schema@.queue_message_setting_value('bundle_max_messages')::integer;
    size_limit bigint := least(@schema@.queue_message_setting_value('bundle_max_bytes')::bigint,
                               @schema@.queue_message_setting_value('max_body_bytes')::bigint);
    parts bigint := 0;
    size bigint := 0;
    terms jsonb;
    one record;
BEGIN
    FOR one IN
        SELECT k.seq, octet_length(k.content::text) AS size, jsonb_build_array(k.bundle_key, k.routing_key, k.exchange, k.ordering_key,
            k.expires_at, @schema@.queue_message_untraced(k.options)) AS terms
        FROM @schema@.queue_message_keyed_row k
        WHERE k.seq = ANY (due) AND k.coalesce_key IS NULL ORDER BY k.bundle_key, k.routing_key, k.exchange, k.seq
    LOOP
        IF terms IS DISTINCT FROM one.terms OR parts >= number_limit OR size + one.size > size_limit THEN
            bundle := @schema@.queue_message_uuid();
            parts := 0;
            size := 0;
        END IF;
        parts := parts + 1;
        size := size + one.size;
        terms := one.terms;
        seq := one.seq;
        RETURN NEXT;
    END LOOP;
END
$body$;

-- Sends the parts of bundles among these. Only what the INSERT meets is the parts' own: an archive without today's partition is an error.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold_parts(due bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    bundles jsonb := (SELECT jsonb_object_agg(p.seq, p.bundle) FROM @schema@.queue_message_keyed_pack(due) p);
BEGIN
    IF bundles IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, options, ordering_key, available_at, expires_at, created_at)
        SELECT (bundles ->> k.seq::text)::uuid, min(k.exchange), min(k.routing_key), jsonb_agg(k.content -> 0 ORDER BY k.seq),
            (array_agg(k.options ORDER BY k.seq))[1], min(k.ordering_key), max(k.available_at), min(k.expires_at), min(k.created_at)
        FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (due) AND k.coalesce_key IS NULL
        GROUP BY 1 ORDER BY min(k.seq);
    EXCEPTION WHEN OTHERS THEN
        PERFORM @schema@.queue_message_keyed_refuse(SQLSTATE, SQLERRM, true);
        RAISE;
    END;
    PERFORM @schema@.queue_message_keyed_discard(jsonb_object_agg(b.key, format('sent within %s', b.value)), 'bundled')
    FROM jsonb_each_text(bundles) b;
END
$body$;
DROP FUNCTION @schema@.queue_message_bundle(bigint[]);

-- The bundles of one key, and of a single one the halves.
CREATE FUNCTION @schema@.queue_message_keyed_halves(seqs bigint[]) RETURNS SETOF bigint[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    SELECT array_agg(p.seq ORDER BY p.seq) FROM (
        SELECT p.seq, p.bundle, min(p.bundle::text) OVER () = max(p.bundle::text) OVER ()
            AND row_number() OVER (ORDER BY p.seq) > cardinality(queue_message_keyed_halves.seqs) / 2 AS second
        FROM @schema@.queue_message_keyed_pack(queue_message_keyed_halves.seqs) p) p
    GROUP BY p.bundle, p.second ORDER BY min(p.seq)
$body$;

-- Sends what waits under these keys, and returns how many messages that took. Where something is in the way of it all, it goes on in tenths, until
-- what is in the way stands alone; at a time it goes no further, and leaves the rest for the next call.
CREATE FUNCTION @schema@.queue_message_fold_some(seqs bigint[], lists integer, clock timestamptz, until timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one bigint[];
    folded bigint := 0;
BEGIN
    FOR one IN SELECT * FROM @schema@.queue_message_keyed_split(seqs, lists) LOOP
        folded := folded + @schema@.queue_message_fold_list(one, clock, until);
        EXIT WHEN clock_timestamp() > until;
    END LOOP;
    RETURN folded;
END
$body$;

-- The same, all at once.
CREATE FUNCTION @schema@.queue_message_fold_list(seqs bigint[], clock timestamptz, until timestamptz, fresh boolean DEFAULT false) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    place text;
    named text;
BEGIN
    PERFORM @schema@.queue_message_fold_versions(seqs, clock, fresh);
    PERFORM @schema@.queue_message_fold_parts(seqs);
    RETURN cardinality(seqs);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS place = TABLE_NAME, named = CONSTRAINT_NAME;
    IF @schema@.queue_message_meets_all(SQLSTATE, place, named) THEN
        RAISE;
    END IF;
    RETURN @schema@.queue_message_fold_past(seqs, clock, until, SQLSTATE, SQLERRM);
END
$body$;

-- The same, past what is in the way. A version whose id is taken is sent with a new one; what the queue refuses is dead, with the reason. Parts that
-- it refuses go bundle by bundle, then in halves: numbers of very many digits may be too long together. All else stays, and is tried again later.
CREATE FUNCTION @schema@.queue_message_fold_past(seqs bigint[], clock timestamptz, until timestamptz, state text, words text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    key record;
BEGIN
    SELECT count(DISTINCT (k.exchange, k.coalesce_key, k.bundle_key, CASE WHEN k.bundle_key IS NOT NULL THEN k.routing_key END)) AS keys,
        bool_and(k.bundle_key IS NOT NULL) AS bundled INTO key
    FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (seqs);
    PERFORM set_config('relay.fold_waited', 'on', true) WHERE state = 'KEY01';
    IF key.keys > 1 THEN
        RETURN @schema@.queue_message_fold_some(seqs, 10, clock, until);
    ELSIF state = 'KEY01' THEN
        RETURN @schema@.queue_message_fold_list(seqs, clock, until, fresh => true);
    ELSIF state <> 'KEY02' THEN
        PERFORM @schema@.queue_message_keyed_failed(seqs, clock, @schema@.queue_message_why(state, words));
        RETURN 0;
    ELSIF key.bundled AND cardinality(seqs) > 1 THEN
        RETURN (SELECT sum(@schema@.queue_message_fold_list(half, clock, until)) FROM @schema@.queue_message_keyed_halves(seqs) AS half);
    END IF;
    PERFORM @schema@.queue_message_keyed_supersede(seqs);
    PERFORM @schema@.queue_message_keyed_archive(seqs[cardinality(seqs):], 'rejected', 'refused', words, 'fold');
    RETURN cardinality(seqs);
END
$body$;

-- As before, but those that were due first, a thousand keys at once, and for two seconds. What a call leaves is due, and the next one goes on. Plans
-- are kept for a session, and one that was made while a table was nearly empty would scan the whole of it later; hence no sequential scans.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold(now timestamptz DEFAULT NULL, most integer DEFAULT 10000,
    OUT folded bigint, OUT next_at timestamptz, OUT superseded bigint, OUT bundled bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    due bigint[];
BEGIN
    folded := 0;
    IF EXISTS (SELECT FROM @schema@.queue_message_keyed_row k WHERE k.due_at <= clock) AND @schema@.queue_message_take_turn('fold') THEN
        due := @schema@.queue_message_keyed_due(clock, most);
        folded := @schema@.queue_message_fold_some(due, 1 + cardinality(due) / 1000, clock, clock_timestamp() + interval '2 seconds');
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
DROP FUNCTION @schema@.queue_message_fold_each(bigint[], bigint[], timestamptz);

-- Why options are too long as text, as relay/encoding.py has it; NULL if they are not. Some bytes of a number are 16,000 of text: what takes up to
-- 4 KiB cannot be too long and is not printed. The size of a compressed value says nothing. Numbers first and one by one, because PostgreSQL prints no
-- more than a gigabyte.
CREATE FUNCTION @schema@.queue_message_options_length_problem(options jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN CASE
        WHEN pg_catalog.pg_column_size(options) <= 4096 AND pg_catalog.pg_column_compression(options) IS NULL THEN NULL
        WHEN (SELECT sum(octet_length(number::text)) > 8388608 FROM pg_catalog.jsonb_path_query(options,
                'strict $.** ? (@.type() == "number")'::pg_catalog.jsonpath) AS number) OR octet_length(options::text) > 8388608
            THEN 'options is longer than 8388608 bytes as text; write numbers of that many digits as strings' END;
END
$$;

-- The sentence that says why these options can never be sent; NULL if they can. As before, but options have a limit as
-- text. Short ones of the common kind stay below it: they hold no list, and a number with a name takes 17 bytes.
CREATE OR REPLACE FUNCTION @schema@.queue_message_options_error(options jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
DECLARE
    spelling text;
    name text;
    value jsonb;
    problem text;
    headers jsonb;
    cc jsonb;
    bcc jsonb;
BEGIN
    -- Before anything else is set up: for most options this is all.
    IF jsonb_typeof(options) = 'object' AND pg_catalog.pg_column_size(options) <= 8192
        AND pg_catalog.pg_column_compression(options) IS NULL AND @schema@.queue_message_options_common(options)
    THEN
        RETURN NULL;
    ELSIF jsonb_typeof(options) <> 'object' THEN
        RETURN 'options must be a JSON object';
    END IF;
    headers := coalesce(nullif(options -> 'headers', 'null'), '{}');
    cc := coalesce(nullif(options -> 'CC', 'null'), nullif(options -> 'cc', 'null'));
    bcc := coalesce(nullif(options -> 'BCC', 'null'), nullif(options -> 'bcc', 'null'));
    FOR spelling, value IN SELECT each.key, each.value FROM jsonb_each(options) AS each LOOP
        name := @schema@.queue_message_option_name(spelling);
        IF name IS NULL THEN
            RETURN 'options has the unknown option ' || @schema@.queue_message_printable(spelling) || '; known are appId, BCC, CC, '
                'contentEncoding, contentType, correlationId, deliveryMode, expiration, headers, immediate, mandatory, messageId, '
                'persistent, priority, replyTo, timestamp, type, userId, also in snake_case';
        END IF;
        CONTINUE WHEN value = 'null';
        problem := @schema@.queue_message_option_problem(name, value);
        IF problem IS NOT NULL THEN
            RETURN 'options.' || spelling || ' must ' || problem;
        ELSIF spelling <> name AND options -> name <> 'null' AND options -> name <> value THEN
            RETURN 'options.' || name || ' and options.' || spelling || ' differ; give one of them';
        END IF;
    END LOOP;
    IF headers = '{}' AND cc IS NULL AND bcc IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN coalesce(@schema@.queue_message_routing_problem(headers, 'CC', cc), @schema@.queue_message_routing_problem(headers, 'BCC', bcc),
        @schema@.queue_message_headers_problem(@schema@.queue_message_select(@schema@.queue_message_select(headers, 'CC', cc), 'BCC', bcc)),
        @schema@.queue_message_options_length_problem(options));
END
$$;

-- Roles of a prefix that this outbox would take over: their members, and why it may not have them, null if it may. Not listed are former roles
-- with rights here, whose members gain nothing. The same holds for members of this outbox's own former roles that
-- are admitted today. Roles that somebody made for this outbox, empty and with members, are taken.
DROP FUNCTION @schema@.queue_message_prefix_roles(text);
CREATE FUNCTION @schema@.queue_message_prefix_roles(prefix text)
    RETURNS TABLE (role text, left_over boolean, members text, problem text, own boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH found AS (
        SELECT DISTINCT r.*, coalesce(shobj_description(r.oid, 'pg_authid') LIKE 'outbox-relay: %', false) AS marked,
            prefix = ANY (@schema@.queue_message_former_prefixes())
                AND shobj_description(r.oid, 'pg_authid') IS NOT DISTINCT FROM @schema@.queue_message_role_mark(p.role) AS own,
            (SELECT present.oid FROM pg_roles present WHERE present.rolname = @schema@.queue_message_role(p.role)) AS present
        FROM @schema@.queue_message_privileges() p JOIN pg_roles r ON r.rolname = prefix || '_' || substr(p.role, 15)
        WHERE r.rolname NOT IN (SELECT g.former FROM @schema@.queue_message_former_grants() g WHERE g.place <> 'SCHEMA')
    ), membership AS (
        SELECT m.roleid, m.member FROM pg_auth_members m WHERE coalesce((to_jsonb(m) ->> 'inherit_option')::boolean OR (to_jsonb(m) ->> 'set_option')::boolean, true)
    ), counted AS (
        SELECT f.*, (SELECT string_agg(DISTINCT quote_ident(who.rolname), ', ') FROM membership m JOIN pg_roles who ON who.oid = m.member
                     WHERE m.roleid = f.oid AND who.rolname <> current_user AND who.oid NOT IN (SELECT o.oid FROM found o)
                         AND NOT (f.own AND EXISTS (SELECT FROM membership today WHERE today.roleid = f.present AND today.member = who.oid))) AS members
        FROM found f
    )
    SELECT c.rolname, c.marked AND NOT c.rolcanlogin, c.members, CASE
        WHEN c.rolcanlogin THEN 'can log in'
        WHEN c.rolsuper OR c.rolcreaterole OR c.rolcreatedb OR c.rolreplication OR c.rolbypassrls THEN 'has attributes'
        WHEN EXISTS (SELECT FROM membership m WHERE m.member = c.oid AND m.roleid NOT IN (SELECT o.oid FROM found o)) THEN 'is a member of other roles'
        WHEN EXISTS (SELECT FROM pg_shdepend s WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = c.oid AND (s.deptype = 'o'
            OR s.deptype = 'a' AND s.dbid <> 0 AND s.classid <> 'pg_namespace'::regclass)) THEN 'has rights of its own'
        WHEN c.own AND c.members IS NOT NULL THEN 'has members that are admitted no more: ' || c.members
        WHEN c.marked AND c.members IS NOT NULL THEN 'has members of an outbox that is gone: ' || c.members END, c.own
    FROM counted c ORDER BY c.rolname
$body$;

-- Why the roles of this outbox may not begin with a prefix, with what to do; null if they may.
CREATE OR REPLACE FUNCTION @schema@.queue_message_prefix_problem(prefix text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT CASE WHEN elsewhere IS NOT NULL
        THEN format('Roles that begin with %s have rights in %s already, and an outbox needs roles of its own: choose another RELAY_ROLE_PREFIX.',
            prefix, elsewhere)
        ELSE (SELECT format(CASE WHEN bool_and(r.own) THEN 'This outbox had roles before that are there still (%s): choose another RELAY_ROLE_PREFIX%s.'
                ELSE 'Roles are there already that are not this outbox''s (%s): choose another RELAY_ROLE_PREFIX%s.' END,
            string_agg(format('%I %s', r.role, r.problem), '; '),
            CASE WHEN bool_and(r.own) THEN ', or drop them: DROP ROLE ' ELSE ', or drop what an outbox that is gone left behind: DROP ROLE ' END
                || string_agg(quote_ident(r.role), ', ') FILTER (WHERE r.left_over))
        FROM @schema@.queue_message_prefix_roles(prefix) r WHERE r.problem IS NOT NULL HAVING count(*) > 0) END
    FROM @schema@.queue_message_roles_elsewhere(prefix) AS elsewhere
$body$;

-- As before, and the audit says which of those with the id it was. Enqueues the message that was archived at a place again and returns the new message's id. An open transaction that inserts the same id is waited for
-- for 5 seconds.
-- A deadline that has passed is left out, or the new message would only be rejected as expired. What was found to be unprintable stays so;
-- the INSERT would take seconds to find it again, and PostgreSQL's own words for it are those of a server without memory.
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
    INSERT INTO @schema@.queue_message_audit (acted_by, action, subject, became)
    VALUES (@schema@.queue_message_signed(by), 'replay', message, jsonb_build_object('id', new_id, 'place', format('%s/%s', old.xid, old.seq)));
    IF old.result IN ('rejected', 'failed', 'lock_expired') THEN
        INSERT INTO @schema@.queue_message_dead_ack (xid, seq, acknowledged_by, note)
        VALUES (old.xid, old.seq, @schema@.queue_message_signed(by), 'replayed as ' || new_id) ON CONFLICT DO NOTHING;
    END IF;
    RETURN new_id;
END
$body$;
