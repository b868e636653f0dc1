-- Messages with a key: enqueued once (dedup_key), replaced while unsent (coalesce_key), sent together (bundle_key); and messages that are
-- taken back. The hot table knows nothing of it, and costs what it did.

-- What waits under a bundle_key or a coalesce_key. The columns are those of the queue, so that the trigger that judges a message there judges
-- it here. seq is a number of the queue's, so that a place in the archive stays one message's; it says which of two is the newer: who
-- inserted after the other's commit, or after waiting for a lock of the other's, has the higher one, whatever their transactions' ids. A part
-- of a bundle is a list of one from the beginning.
CREATE TABLE @schema@.queue_message_keyed_row (
    LIKE @schema@.queue_message INCLUDING DEFAULTS,
    bundle_key   text,
    coalesce_key text,
    -- available_at, or where there is none the end of its collecting time.
    due_at       timestamptz NOT NULL,
    CONSTRAINT queue_message_keyed_row_pkey PRIMARY KEY (seq),
    CONSTRAINT queue_message_keyed_row_id_key UNIQUE (id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE @schema@.queue_message_keyed_row DROP COLUMN lane;
CREATE INDEX queue_message_keyed_row_due_at_idx ON @schema@.queue_message_keyed_row (due_at);
CREATE INDEX queue_message_keyed_row_bundle_idx ON @schema@.queue_message_keyed_row (bundle_key, routing_key, exchange) WHERE bundle_key IS NOT NULL;
CREATE TRIGGER queue_message_check BEFORE INSERT ON @schema@.queue_message_keyed_row
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_check();

-- Which dedup_key is known until when, and by which message.
CREATE TABLE @schema@.queue_message_dedup (
    exchange   text        NOT NULL,
    dedup_key  text        NOT NULL,
    message_id uuid        NOT NULL,
    until      timestamptz NOT NULL,
    PRIMARY KEY (exchange, dedup_key)
);
CREATE INDEX queue_message_dedup_until_idx ON @schema@.queue_message_dedup (until);

-- The message that was sent to the queue last under each coalesce_key.
CREATE TABLE @schema@.queue_message_coalesced (
    exchange     text        NOT NULL,
    coalesce_key text        NOT NULL,
    message_id   uuid        NOT NULL,
    seq          bigint      NOT NULL,
    folded_at    timestamptz NOT NULL,
    PRIMARY KEY (exchange, coalesce_key)
);
CREATE INDEX queue_message_coalesced_folded_at_idx ON @schema@.queue_message_coalesced (folded_at);

-- What an application inserts. A view, so that what is known already is no row: INSERT 0 0, and RETURNING returns nothing.
CREATE VIEW @schema@.queue_message_keyed AS
    SELECT k.id, k.exchange, k.routing_key, CASE WHEN k.bundle_key IS NULL THEN k.content ELSE k.content -> 0 END AS content, k.body, k.options,
        k.ordering_key, k.available_at, k.expires_at, k.bundle_key, k.coalesce_key, NULL::text AS dedup_key, NULL::integer AS dedup_seconds
    FROM @schema@.queue_message_keyed_row k;
COMMENT ON VIEW @schema@.queue_message_keyed IS 'Messages with a key: INSERT here what shall be sent once, newest only, or together.';
ALTER VIEW @schema@.queue_message_keyed ALTER COLUMN id SET DEFAULT @schema@.queue_message_uuid();
ALTER VIEW @schema@.queue_message_keyed ALTER COLUMN routing_key SET DEFAULT '';
ALTER VIEW @schema@.queue_message_keyed ALTER COLUMN content SET DEFAULT '{}';
ALTER VIEW @schema@.queue_message_keyed ALTER COLUMN options SET DEFAULT '{}';

-- Where is message X? Over queue, keys and archive. state: ready, locked, delayed, keyed (it waits under its key), or the result.
CREATE VIEW @schema@.queue_message_state AS
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
        format('due at %s', k.due_at), k.replay_of, NULL, NULL, NULL, NULL, k.xid, k.seq, NULL
    FROM @schema@.queue_message_keyed_row k
    UNION ALL
    SELECT a.id, a.result, a.exchange, a.routing_key, a.ordering_key, a.attempts, a.created_at, a.available_at, a.expires_at, NULL,
        a.handled_by, a.error_code, a.error_detail, a.replay_of, a.claimed_at, a.published_at, a.confirmed_at, a.archived_at, a.xid, a.seq, a.archived_xid
    FROM @schema@.queue_message_archive a;

-- Refuses keys that make no sense together, with a sentence; whether anything does is judged with the message.
CREATE FUNCTION @schema@.queue_message_keys_check(bundle_key text, coalesce_key text, dedup_key text, dedup_seconds integer, body bytea) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF num_nonnulls(bundle_key, coalesce_key, dedup_key) = 0 THEN
        PERFORM @schema@.queue_message_refuse('bundle_key',
            'bundle_key, coalesce_key and dedup_key are all null; insert a message without a key into queue_message');
    ELSIF bundle_key IS NOT NULL AND coalesce_key IS NOT NULL THEN
        PERFORM @schema@.queue_message_refuse('bundle_key',
            'bundle_key and coalesce_key are both given; a message is sent with others or replaced by them');
    ELSIF bundle_key IS NOT NULL AND body IS NOT NULL THEN
        PERFORM @schema@.queue_message_refuse('body', 'body and bundle_key are both given; a bundle is a JSON list, so use content');
    ELSIF dedup_seconds IS NOT NULL AND (dedup_key IS NULL OR dedup_seconds NOT BETWEEN 1 AND 31536000) THEN
        PERFORM @schema@.queue_message_refuse('dedup_seconds',
            'dedup_seconds is ' || dedup_seconds || '; it must be from 1 to 31536000, beside a dedup_key');
    END IF;
    PERFORM @schema@.queue_message_check_size(given.name, octet_length(given.value), 1024)
    FROM (VALUES ('bundle_key', bundle_key), ('coalesce_key', coalesce_key), ('dedup_key', dedup_key)) AS given (name, value);
END
$body$;

-- Whether a dedup_key is new, and from now on known. Who inserts the same at once waits for the other's end: after its commit the key is
-- known, after its rollback it is new.
CREATE FUNCTION @schema@.queue_message_first(exchange text, dedup_key text, message uuid, seconds integer) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    -- By far the most that are known are so for longer: to see that locks nothing.
    IF EXISTS (SELECT FROM @schema@.queue_message_dedup d WHERE d.exchange = exchange AND d.dedup_key = dedup_key AND d.until > now()) THEN
        RETURN false;
    END IF;
    -- The table itself: the function that reads a setting is planned at each call, which costs more than all the rest.
    INSERT INTO @schema@.queue_message_dedup AS d (exchange, dedup_key, message_id, until) VALUES (exchange, dedup_key, message,
        now() + make_interval(secs => coalesce(seconds,
            (SELECT s.value FROM @schema@.queue_message_setting s WHERE s.name = 'dedup_seconds')::integer, 86400)))
    ON CONFLICT ON CONSTRAINT queue_message_dedup_pkey DO UPDATE SET message_id = excluded.message_id, until = excluded.until
    WHERE d.until <= now();
    RETURN FOUND;
END
$body$;

-- The message that a dedup_key is known by, for who was told that it is. Not stable: after the wait for another's transaction it is newer than
-- the statement. Producers may see every id in the queue.
CREATE FUNCTION @schema@.queue_message_known(exchange text, dedup_key text) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    RETURN (SELECT d.message_id FROM @schema@.queue_message_dedup d WHERE d.exchange = exchange AND d.dedup_key = dedup_key);
END
$body$;

CREATE FUNCTION @schema@.queue_message_keyed_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM @schema@.queue_message_keys_check(NEW.bundle_key, NEW.coalesce_key, NEW.dedup_key, NEW.dedup_seconds, NEW.body);
    IF NEW.dedup_key IS NOT NULL AND NOT @schema@.queue_message_first(NEW.exchange, NEW.dedup_key, NEW.id, NEW.dedup_seconds) THEN
        RETURN NULL;
    ELSIF num_nonnulls(NEW.bundle_key, NEW.coalesce_key) = 0 THEN
        INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at)
        VALUES (NEW.id, NEW.exchange, NEW.routing_key, NEW.content, NEW.body, NEW.options, NEW.ordering_key, NEW.available_at, NEW.expires_at);
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
    RETURN NEW;
END
$body$;

CREATE TRIGGER queue_message_keyed_insert INSTEAD OF INSERT ON @schema@.queue_message_keyed
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_keyed_insert();

-- Moves what waits under a key to the archive; returns how many.
CREATE FUNCTION @schema@.queue_message_keyed_archive(seqs bigint[], result text, error_code text, error_detail text, handled_by text) RETURNS bigint
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
    SELECT count(*) FROM kept
$body$;

-- Takes a message that nobody has claimed out of the queue, archived with a result that no broker gave; false where it is not there or is
-- claimed. Its lock is waited for if patient. Where it turns out to be claimed the row is let go at once, by undoing the block: an
-- application's transaction would hold up the settle of its whole batch. The next of its ordering key becomes due.
CREATE FUNCTION @schema@.queue_message_take_out(
    message uuid, result text, error_code text, error_detail text, handled_by text, patient boolean DEFAULT true) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
BEGIN
    IF patient THEN
        SELECT m.xid, m.seq, m.ordering_key, m.lock_expires_at, m.last_error INTO one
        FROM @schema@.queue_message m WHERE m.id = message FOR UPDATE;
    ELSE
        SELECT m.xid, m.seq, m.ordering_key, m.lock_expires_at, m.last_error INTO one
        FROM @schema@.queue_message m WHERE m.id = message FOR UPDATE SKIP LOCKED;
    END IF;
    IF one.seq IS NULL THEN
        RETURN false;
    ELSIF one.lock_expires_at IS NOT NULL THEN
        RAISE EXCEPTION 'Message % is claimed.', message USING ERRCODE = 'object_in_use';
    END IF;
    PERFORM @schema@.queue_message_archive_now(ARRAY[message], result, error_code, coalesce(error_detail, one.last_error), handled_by);
    IF one.ordering_key IS NOT NULL AND NOT EXISTS (
        SELECT FROM @schema@.queue_message m WHERE m.ordering_key = one.ordering_key AND (m.xid, m.seq) < (one.xid, one.seq)) THEN
        PERFORM @schema@.queue_message_wake_key(one.ordering_key);
    END IF;
    RETURN true;
EXCEPTION WHEN object_in_use THEN
    RETURN false;
END
$body$;

-- Takes back a message that nobody has claimed: archived as discarded, code cancelled, with who did it. True if it will not be sent any
-- more; false if it is claimed, settled or unknown. A lock that has expired still counts: what it held may be with the broker.
CREATE FUNCTION @schema@.queue_message_cancel(message uuid, by text DEFAULT session_user) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    keyed bigint := (SELECT k.seq FROM @schema@.queue_message_keyed_row k WHERE k.id = message FOR UPDATE);
BEGIN
    -- What a fold has just sent under its own id is in the queue by now.
    IF keyed IS NOT NULL THEN
        RETURN @schema@.queue_message_keyed_archive(
            ARRAY[keyed], 'discarded', 'cancelled', NULL, @schema@.queue_message_signed(by)) = 1;
    END IF;
    RETURN @schema@.queue_message_take_out(message, 'discarded', 'cancelled', NULL, @schema@.queue_message_signed(by));
END
$body$;

-- Sends what waits under a key as it stands, with its id; false where the queue refuses it today: then it is dead, with the reason.
CREATE FUNCTION @schema@.queue_message_keyed_send(place bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    refusal text;
BEGIN
    BEGIN
        INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at, created_at)
        SELECT k.id, k.exchange, k.routing_key, k.content, k.body, k.options, k.ordering_key, k.available_at, k.expires_at, k.created_at
        FROM @schema@.queue_message_keyed_row k WHERE k.seq = place;
    EXCEPTION WHEN OTHERS THEN
        refusal := @schema@.queue_message_refusal(SQLSTATE, SQLERRM);
        IF refusal IS NULL THEN
            RAISE;
        END IF;
        PERFORM @schema@.queue_message_keyed_archive(ARRAY[place], 'rejected', 'refused', refusal, 'fold');
        RETURN false;
    END;
    DELETE FROM @schema@.queue_message_keyed_row k WHERE k.seq = place;
    RETURN true;
END
$body$;

-- Of each coalesce_key sends the newest that is due, in place of what it sent before if nobody has claimed that; the older ones are archived.
-- Newest first, so that a limit never lets an older one through. What was inserted before the last one that was sent, and came late, is
-- older too; the times are compared as well, as somebody may have begun the numbers anew.
CREATE FUNCTION @schema@.queue_message_fold_newest(clock timestamptz, most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    due bigint[] := ARRAY(SELECT k.seq FROM @schema@.queue_message_keyed_row k WHERE k.coalesce_key IS NOT NULL AND k.due_at <= clock
                          ORDER BY k.seq DESC LIMIT most FOR UPDATE SKIP LOCKED);
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
    RETURN cardinality(due);
END
$body$;

-- Options without the trace of their transaction, which does not keep messages apart.
CREATE FUNCTION @schema@.queue_message_untraced(options jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT CASE WHEN jsonb_typeof(options -> 'headers') IS DISTINCT FROM 'object' THEN options
        WHEN (options -> 'headers') - '{traceparent,tracestate}'::text[] = '{}' THEN options - 'headers'
        ELSE jsonb_set(options, '{headers}', (options -> 'headers') - '{traceparent,tracestate}'::text[]) END
$body$;

-- Makes one message of these parts, and archives them with its id. Where the queue refuses it they go in halves: numbers of very many digits
-- may be too long together. A part that is refused alone is dead. Only the INSERT is tried: an archive without today's partition is an error.
CREATE FUNCTION @schema@.queue_message_bundle(seqs bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    bundle uuid := @schema@.queue_message_uuid();
    half integer := cardinality(seqs) / 2;
    refusal text;
BEGIN
    BEGIN
        INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, options, ordering_key, available_at, expires_at, created_at)
        SELECT bundle, min(k.exchange), min(k.routing_key), jsonb_agg(k.content -> 0 ORDER BY k.seq), (array_agg(k.options ORDER BY k.seq))[1],
            min(k.ordering_key), max(k.available_at), min(k.expires_at), min(k.created_at)
        FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (seqs);
    EXCEPTION WHEN OTHERS THEN
        refusal := @schema@.queue_message_refusal(SQLSTATE, SQLERRM);
        IF refusal IS NULL THEN
            RAISE;
        END IF;
    END;
    IF refusal IS NULL THEN
        PERFORM @schema@.queue_message_keyed_archive(seqs, 'discarded', 'bundled', format('sent within %s', bundle), 'fold');
    ELSIF half = 0 THEN
        PERFORM @schema@.queue_message_keyed_archive(seqs, 'rejected', 'refused', refusal, 'fold');
    ELSE
        PERFORM @schema@.queue_message_bundle(seqs[:half]), @schema@.queue_message_bundle(seqs[half + 1:]);
    END IF;
END
$body$;

-- Sends what is due under bundle keys: a key is due with its oldest part, and takes along what is not meant for later. Parts stand in the
-- order in which they were inserted; where the next one has other terms, or is beyond the number or the bytes of a bundle, another begins.
CREATE FUNCTION @schema@.queue_message_fold_bundles(clock timestamptz, most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    due bigint[] := ARRAY(
        SELECT k.seq FROM @schema@.queue_message_keyed_row k
        WHERE k.bundle_key IS NOT NULL AND (k.available_at IS NULL OR k.available_at <= clock)
          AND (k.bundle_key, k.routing_key, k.exchange) IN (
              SELECT d.bundle_key, d.routing_key, d.exchange FROM @schema@.queue_message_keyed_row d
              WHERE d.bundle_key IS NOT NULL AND d.due_at <= clock)
        ORDER BY k.seq LIMIT most FOR UPDATE SKIP LOCKED);
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
    RETURN cardinality(due);
END
$body$;

-- Sends what is due under its keys; returns how many it took, and when the next is due: null for none, a time that has passed where there is
-- more. One at a time; who finds another at it leaves it to that. Called by any living relay and by pg_cron. superseded, bundled: what became
-- of them, for metrics; also of those that this transaction folded before.
CREATE FUNCTION @schema@.queue_message_fold(now timestamptz DEFAULT NULL, most integer DEFAULT 10000,
    OUT folded bigint, OUT next_at timestamptz, OUT superseded bigint, OUT bundled bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
BEGIN
    folded := 0;
    IF pg_try_advisory_xact_lock(724017729, hashtext(@schema_literal@)) THEN
        folded := @schema@.queue_message_fold_newest(clock, most) + @schema@.queue_message_fold_bundles(clock, most);
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

-- Deletes up to 50,000 dedup keys that are known no more, and as many coalesce keys under which nothing was sent for a day; returns how many.
-- Called by queue_message_retain().
CREATE FUNCTION @schema@.queue_message_delete_keys(clock timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    known bigint;
    sent bigint;
BEGIN
    DELETE FROM @schema@.queue_message_dedup d WHERE d.ctid = ANY (ARRAY(
        SELECT old.ctid FROM @schema@.queue_message_dedup old WHERE old.until <= clock ORDER BY old.until LIMIT 50000 FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS known = ROW_COUNT;
    DELETE FROM @schema@.queue_message_coalesced c WHERE c.ctid = ANY (ARRAY(
        SELECT old.ctid FROM @schema@.queue_message_coalesced old
        WHERE old.folded_at <= clock - interval '1 day'
          AND NOT EXISTS (SELECT FROM @schema@.queue_message m WHERE m.id = old.message_id)
          AND NOT EXISTS (SELECT FROM @schema@.queue_message_keyed_row k WHERE (k.exchange, k.coalesce_key) = (old.exchange, old.coalesce_key))
        ORDER BY old.folded_at LIMIT 50000 FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS sent = ROW_COUNT;
    RETURN known + sent;
END
$body$;
