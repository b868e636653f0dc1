-- Large messages under keys hold up no small ones: a fold knows sizes, takes small keys and large ones in turn, and sends some megabytes at once.

-- Bytes of content, options and body as text. Null for rows that no trigger saw, from before or restored; a fold measures these. No generated
-- column, as that would print every waiting row while nobody can insert, and fail at one that PostgreSQL cannot print.
ALTER TABLE @schema@.queue_message_keyed_row ADD COLUMN size integer;
-- Whether the row is large, or its key has a row that is. True where the size is not known.
ALTER TABLE @schema@.queue_message_keyed_row ADD COLUMN large boolean NOT NULL DEFAULT true;
CREATE INDEX queue_message_keyed_row_large_idx ON @schema@.queue_message_keyed_row (large, due_at);

-- Without the rows that wait for a later time of their own: a fold would walk past all of them.
DROP INDEX @schema@.queue_message_keyed_row_bundle_idx;
CREATE INDEX queue_message_keyed_row_bundle_idx ON @schema@.queue_message_keyed_row (bundle_key, routing_key, exchange, seq)
    WHERE bundle_key IS NOT NULL AND (available_at IS NULL OR available_at < due_at);
DROP INDEX @schema@.queue_message_keyed_row_coalesce_idx;
CREATE INDEX queue_message_keyed_row_coalesce_idx ON @schema@.queue_message_keyed_row (coalesce_key, exchange, seq)
    WHERE coalesce_key IS NOT NULL AND (available_at IS NULL OR available_at < due_at);

-- Nothing is due before it was inserted, also not what is there already.
UPDATE @schema@.queue_message_keyed_row k SET due_at = k.created_at WHERE k.due_at < k.created_at;

-- Runs after queue_message_check, by its name: what cannot be printed is refused there. 16 KiB take a fold about as long as three small rows,
-- and a tenth of that where they are headers, each of which the queue judges anew.
CREATE FUNCTION @schema@.queue_message_keyed_measure() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    NEW.size := octet_length(NEW.content::text) + octet_length(NEW.options::text) + coalesce(octet_length(NEW.body), 0);
    NEW.large := NEW.size + 9 * octet_length(NEW.options::text) > 16384;
    NEW.due_at := greatest(NEW.due_at, clock_timestamp());
    RETURN NEW;
END
$body$;
CREATE TRIGGER queue_message_measure BEFORE INSERT ON @schema@.queue_message_keyed_row
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_keyed_measure();

-- Measures those of these rows that no trigger saw, until a time. What PostgreSQL cannot print or count counts as a gigabyte.
CREATE FUNCTION @schema@.queue_message_keyed_measure_some(seqs bigint[], until timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one bigint;
BEGIN
    FOR one IN SELECT k.seq FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (seqs) AND k.size IS NULL ORDER BY k.due_at LOOP
        BEGIN
            UPDATE @schema@.queue_message_keyed_row k
            SET size = octet_length(k.content::text) + octet_length(k.options::text) + coalesce(octet_length(k.body), 0) WHERE k.seq = one;
        EXCEPTION WHEN program_limit_exceeded OR numeric_value_out_of_range THEN
            UPDATE @schema@.queue_message_keyed_row k SET size = 1 << 30 WHERE k.seq = one;
        END;
        EXIT WHEN clock_timestamp() > until;
    END LOOP;
END
$body$;

-- Locks and returns what a fold takes of the small rows, or of the large ones: those that were due first; with each of their coalesce keys also
-- the newest, so that no limit lets an older one through, and none is sent while a newer one waits for its next try; and with bundle keys what
-- else is there, the first in the order of the inserts. What waited for a time of its own is like all else of its key once it is among the first:
-- a microsecond later, for by that the indexes know it. No more than three times as many as asked for.
DROP FUNCTION @schema@.queue_message_keyed_due(timestamptz, integer);
CREATE FUNCTION @schema@.queue_message_keyed_due(clock timestamptz, most integer, large boolean) RETURNS bigint[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    UPDATE @schema@.queue_message_keyed_row k SET due_at = k.due_at + interval '1 us' WHERE k.seq = ANY (ARRAY(
        SELECT k.seq FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (ARRAY(
            SELECT o.seq FROM (
                SELECT k.seq, k.due_at, k.available_at FROM @schema@.queue_message_keyed_row k
                WHERE k.large = queue_message_keyed_due.large AND k.due_at < queue_message_keyed_due.clock
                ORDER BY k.due_at LIMIT queue_message_keyed_due.most) o
            WHERE o.available_at >= o.due_at)) FOR UPDATE SKIP LOCKED));
    WITH oldest AS MATERIALIZED (
        SELECT k.seq, k.exchange, k.coalesce_key, k.bundle_key, k.routing_key, k.due_at FROM @schema@.queue_message_keyed_row k
        WHERE k.large = queue_message_keyed_due.large AND k.due_at <= queue_message_keyed_due.clock
        ORDER BY k.due_at LIMIT queue_message_keyed_due.most FOR UPDATE SKIP LOCKED
    ), newest AS (
        SELECT version.seq FROM (SELECT DISTINCT o.coalesce_key, o.exchange FROM oldest o WHERE o.coalesce_key IS NOT NULL) key
        CROSS JOIN LATERAL (
            SELECT k.seq FROM @schema@.queue_message_keyed_row k
            WHERE k.coalesce_key = key.coalesce_key AND k.exchange = key.exchange AND (k.available_at IS NULL OR k.available_at < k.due_at)
            ORDER BY k.seq DESC LIMIT 1 FOR UPDATE SKIP LOCKED) version
    ), parts AS (
        SELECT part.seq FROM (
            SELECT o.bundle_key, o.routing_key, o.exchange FROM oldest o
            WHERE o.bundle_key IS NOT NULL GROUP BY 1, 2, 3 ORDER BY min(o.due_at)) key
        CROSS JOIN LATERAL (
            SELECT k.seq FROM @schema@.queue_message_keyed_row k
            WHERE k.bundle_key = key.bundle_key AND k.routing_key = key.routing_key AND k.exchange = key.exchange
                AND (k.available_at IS NULL OR k.available_at < k.due_at)
            ORDER BY k.seq LIMIT queue_message_keyed_due.most FOR UPDATE SKIP LOCKED) part
        LIMIT queue_message_keyed_due.most
    )
    SELECT ARRAY(
        SELECT o.seq FROM oldest o WHERE o.coalesce_key IS NOT NULL UNION SELECT n.seq FROM newest n UNION ALL SELECT p.seq FROM parts p)
$body$;

-- Of large rows so many as have 64 MiB together, none while the size of one is not known: bundles are packed as one. Keys that were due first come
-- first; of a key its first parts, or its newest version.
CREATE FUNCTION @schema@.queue_message_keyed_first(seqs bigint[]) RETURNS bigint[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    SELECT CASE WHEN bool_and(k.size IS NOT NULL) THEN array_agg(k.seq) FILTER (WHERE k.ahead < 67108864) END FROM (
        SELECT k.seq, k.size, sum(k.size) OVER (ORDER BY k.key_due_at, k.place ROWS UNBOUNDED PRECEDING) - k.size AS ahead FROM (
            SELECT k.seq, k.size, CASE WHEN k.coalesce_key IS NULL THEN k.seq ELSE -k.seq END AS place, min(k.due_at) OVER (
                PARTITION BY k.exchange, k.coalesce_key, k.bundle_key, CASE WHEN k.bundle_key IS NOT NULL THEN k.routing_key END) AS key_due_at
            FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (queue_message_keyed_first.seqs)) k) k
$body$;

-- Cuts these into lists of some megabytes, or a thousand rows, and into so many at least; those that were due first in the first one. No key is
-- in two of them, and a list has the order of the inserts; a key of more than 4 MiB stands alone, to be cut. Large keys come first, so that
-- who leaves them to others has seen them all. Versions of one coalesce_key may differ in their routing key.
DROP FUNCTION @schema@.queue_message_keyed_split(bigint[], integer);
CREATE FUNCTION @schema@.queue_message_keyed_split(seqs bigint[], lists integer) RETURNS TABLE (list bigint[], large boolean, cut boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH key AS (
        SELECT array_agg(k.seq) AS seqs, bool_or(k.large) AS large, sum(k.size) > 4194304 AS cut, (sum(k.size) + 4096 * count(*))::float8 AS weight,
            min(k.due_at) AS due_at, min(k.seq) AS first
        FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (queue_message_keyed_split.seqs)
        GROUP BY k.exchange, k.coalesce_key, k.bundle_key, CASE WHEN k.bundle_key IS NOT NULL THEN k.routing_key END
    ), placed AS (
        SELECT key.*, row_number() OVER due AS number, count(*) OVER () AS keys, sum(key.weight) OVER due - key.weight AS ahead
        FROM key WINDOW due AS (ORDER BY key.due_at, key.first ROWS UNBOUNDED PRECEDING)
    )
    SELECT array_agg(one.seq ORDER BY one.seq), p.large, bool_or(p.cut) FROM placed p CROSS JOIN unnest(p.seqs) AS one (seq)
    GROUP BY p.large, (p.number - 1) * queue_message_keyed_split.lists / p.keys, floor(p.ahead / 4194304), CASE WHEN p.cut THEN p.number END
    ORDER BY p.large DESC, min(p.number);
END
$body$;

-- Refuses a payload that is longer than the limit before anything prints it: a relay would reject it. In another encoding than UTF8 the relay
-- does, for it is longer or shorter there.
CREATE FUNCTION @schema@.queue_message_keyed_within(size bigint, size_limit bigint, column_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF size > size_limit AND getdatabaseencoding() = 'UTF8' THEN
        RAISE EXCEPTION '% is longer than the limit of % bytes (RELAY_MAX_BODY_BYTES)', column_name, size_limit USING ERRCODE = 'KEY03';
    END IF;
    RETURN true;
END
$body$;

-- As before, within the limit of a payload.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_send(due bigint[], fresh boolean) RETURNS TABLE (own uuid, sent uuid, number bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $body$
#variable_conflict use_variable
DECLARE
    size_limit bigint := @schema@.queue_message_setting_value('max_body_bytes')::bigint;
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
EXCEPTION WHEN OTHERS THEN
    PERFORM @schema@.queue_message_keyed_refuse(SQLSTATE, SQLERRM, fresh);
    RAISE;
END
$body$;

-- As before, but no more than 64 MiB of several keys: beyond, the error has the fold go on in tenths. Takes what was sent last under the keys of
-- these versions out of the queue, if nobody has claimed it: they replace it. It is known by its number: another row with its id is left alone.
-- Nobody's lock is waited for. What has an ordering_key goes one by one, as its key may have to be woken.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_replace(due bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    details jsonb;
    ordered jsonb;
    size bigint;
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

-- In which message each of these parts is sent, by number: in the order of their inserts, and where the next one has other terms, or is beyond the
-- number or the bytes of a bundle, another begins. Each part is a list of one, so its length counts the comma and the space, or the brackets.
DROP FUNCTION @schema@.queue_message_keyed_pack(bigint[]);
CREATE FUNCTION @schema@.queue_message_keyed_pack(due bigint[]) RETURNS TABLE (seq bigint, bundle uuid, size bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    number_limit integer := @schema@.queue_message_setting_value('bundle_max_messages')::integer;
    size_limit bigint := least(@schema@.queue_message_setting_value('bundle_max_bytes')::bigint,
                               @schema@.queue_message_setting_value('max_body_bytes')::bigint);
    parts bigint := 0;
    packed bigint := 0;
    terms jsonb;
    one record;
BEGIN
    FOR one IN
        SELECT k.seq, k.size - octet_length(k.options::text) AS size, jsonb_build_array(k.bundle_key, k.routing_key, k.exchange, k.ordering_key,
            k.expires_at, @schema@.queue_message_untraced(k.options)) AS terms
        FROM @schema@.queue_message_keyed_row k
        WHERE k.seq = ANY (due) AND k.coalesce_key IS NULL ORDER BY k.bundle_key, k.routing_key, k.exchange, k.seq
    LOOP
        IF terms IS DISTINCT FROM one.terms OR parts >= number_limit OR packed + one.size > size_limit THEN
            bundle := @schema@.queue_message_uuid();
            parts := 0;
            packed := 0;
        END IF;
        parts := parts + 1;
        packed := packed + one.size;
        terms := one.terms;
        seq := one.seq;
        size := one.size;
        RETURN NEXT;
    END LOOP;
END
$body$;

-- As before, within the limit of a payload, beyond which a part is alone in its bundle. Only what the INSERT meets is the parts' own: an archive
-- without today's partition is an error.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold_parts(due bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    bundles jsonb;
    largest bigint;
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
    EXCEPTION WHEN OTHERS THEN
        PERFORM @schema@.queue_message_keyed_refuse(SQLSTATE, SQLERRM, true);
        RAISE;
    END;
    PERFORM @schema@.queue_message_keyed_discard(jsonb_object_agg(b.key, format('sent within %s', b.value)), 'bundled')
    FROM jsonb_each_text(bundles) b;
END
$body$;

-- A key of very many bytes in pieces of about 4 MiB: the parts of bundles in their order, whole bundles together; of versions the newest first,
-- for the older ones come too late once it is sent.
CREATE FUNCTION @schema@.queue_message_keyed_pieces(seqs bigint[]) RETURNS SETOF bigint[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    WITH unit AS (
        SELECT array_agg(p.seq) AS seqs, sum(p.size) AS size, min(p.seq) AS place
        FROM @schema@.queue_message_keyed_pack(queue_message_keyed_pieces.seqs) p GROUP BY p.bundle
        UNION ALL
        SELECT ARRAY[k.seq], k.size, -k.seq FROM @schema@.queue_message_keyed_row k
        WHERE k.seq = ANY (queue_message_keyed_pieces.seqs) AND k.coalesce_key IS NOT NULL
    )
    SELECT array_agg(one.seq ORDER BY one.seq) FROM (
        SELECT u.*, div(sum(u.size) OVER (ORDER BY u.place ROWS UNBOUNDED PRECEDING) - u.size, 4194304) AS piece FROM unit u) u
    CROSS JOIN unnest(u.seqs) AS one (seq) GROUP BY u.piece ORDER BY u.piece
$body$;

-- As before, and with it waits what else of the key is due, so that it goes in order, and fills no call meanwhile: of versions the older ones, for a
-- newer one may go. No more than a call takes; what somebody else has locked is left alone. The newest has the reason: each call takes it.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_failed(seqs bigint[], clock timestamptz, problem text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    longest interval := make_interval(secs => @schema@.queue_message_setting_value('backoff_max')::double precision);
    waited interval := (SELECT clock - min(coalesce(k.available_at, k.created_at)) FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (seqs));
    newest bigint := seqs[cardinality(seqs)];
    key record;
BEGIN
    SELECT k.exchange, k.coalesce_key, k.bundle_key, k.routing_key INTO key FROM @schema@.queue_message_keyed_row k WHERE k.seq = newest;
    UPDATE @schema@.queue_message_keyed_row k
    SET due_at = greatest(k.due_at, clock + least(greatest(waited, '1 second'), longest)), last_error = CASE WHEN k.seq = newest THEN problem END
    WHERE k.seq = ANY (seqs || ARRAY(
        SELECT k.seq FROM @schema@.queue_message_keyed_row k
        WHERE k.coalesce_key = key.coalesce_key AND k.exchange = key.exchange AND k.seq < newest
            AND (k.available_at IS NULL OR k.available_at < k.due_at) AND k.due_at <= clock
        ORDER BY k.seq DESC LIMIT 10000 FOR UPDATE SKIP LOCKED
    ) || ARRAY(
        SELECT k.seq FROM @schema@.queue_message_keyed_row k
        WHERE k.bundle_key = key.bundle_key AND k.routing_key = key.routing_key AND k.exchange = key.exchange
            AND (k.available_at IS NULL OR k.available_at < k.due_at) AND k.due_at <= clock
        ORDER BY k.seq DESC LIMIT 10000 FOR UPDATE SKIP LOCKED
    ));
    RAISE WARNING 'messages with a key cannot be sent to the queue, and are tried again: %', problem;
END
$body$;

-- Sends such a key, or the bundles of one or their halves. Where a piece cannot be sent none behind it is.
CREATE FUNCTION @schema@.queue_message_fold_pieces(seqs bigint[], clock timestamptz, until timestamptz, halves boolean DEFAULT false)
    RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    piece bigint[];
    sent bigint;
    folded bigint := 0;
BEGIN
    FOR piece IN
        SELECT p.* FROM @schema@.queue_message_keyed_pieces(seqs) p WHERE NOT halves
        UNION ALL SELECT h.* FROM @schema@.queue_message_keyed_halves(seqs) h WHERE halves
    LOOP
        sent := @schema@.queue_message_fold_list(piece, clock, until);
        folded := folded + sent;
        EXIT WHEN sent < cardinality(piece) OR clock_timestamp() > until;
    END LOOP;
    RETURN folded;
END
$body$;

-- Leaves these rows to the large ones, and of the small rows that are due first those of the same bundles: where a bundle has many parts, the first
-- of them were taken, and not those for which it was.
CREATE FUNCTION @schema@.queue_message_keyed_leave(seqs bigint[], clock timestamptz, most integer) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    UPDATE @schema@.queue_message_keyed_row k SET large = true
    WHERE NOT k.large AND k.seq = ANY (queue_message_keyed_leave.seqs || ARRAY(
        SELECT small.seq FROM (
            SELECT s.seq, s.exchange, s.routing_key, s.bundle_key FROM @schema@.queue_message_keyed_row s
            WHERE NOT s.large AND s.due_at <= queue_message_keyed_leave.clock
            ORDER BY s.due_at LIMIT queue_message_keyed_leave.most FOR UPDATE SKIP LOCKED) small
        JOIN (SELECT DISTINCT l.exchange, l.routing_key, l.bundle_key FROM @schema@.queue_message_keyed_row l
              WHERE l.seq = ANY (queue_message_keyed_leave.seqs)) key USING (exchange, routing_key, bundle_key)))
$body$;

-- Sends what waits under these keys, and returns how many messages that took. Where something is in the way of it all, it goes on in tenths, until
-- what is in the way stands alone; at a time it goes no further, and leaves the rest for the next call. Without large: leaves a key that turns
-- out to have a large row to those that take the large ones, whole, so that its order stays.
DROP FUNCTION @schema@.queue_message_fold_some(bigint[], integer, timestamptz, timestamptz);
CREATE FUNCTION @schema@.queue_message_fold_some(seqs bigint[], lists integer, clock timestamptz, until timestamptz, large boolean DEFAULT true)
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
            CONTINUE;
        END IF;
        folded := folded + CASE WHEN one.cut THEN @schema@.queue_message_fold_pieces(one.list, clock, until)
            ELSE @schema@.queue_message_fold_list(one.list, clock, until) END;
        EXIT WHEN clock_timestamp() > until;
    END LOOP;
    RETURN folded;
END
$body$;

-- Sends what is due of the large ones.
CREATE FUNCTION @schema@.queue_message_fold_large(clock timestamptz, most integer, until timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    due bigint[] := @schema@.queue_message_keyed_due(clock, most, true);
BEGIN
    PERFORM @schema@.queue_message_keyed_measure_some(due, until);
    RETURN @schema@.queue_message_fold_some(@schema@.queue_message_keyed_first(due), 1, clock, until);
END
$body$;

-- As before, but what is above the limit of a payload has a code of its own, and no older version is sent after one that is refused.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold_past(seqs bigint[], clock timestamptz, until timestamptz, state text, words text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    key record;
    newest bigint := seqs[cardinality(seqs)];
BEGIN
    SELECT count(DISTINCT (k.exchange, k.coalesce_key, k.bundle_key, CASE WHEN k.bundle_key IS NOT NULL THEN k.routing_key END)) AS keys,
        bool_and(k.bundle_key IS NOT NULL) AS bundled INTO key
    FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (seqs);
    PERFORM set_config('relay.fold_waited', 'on', true) WHERE state = 'KEY01';
    IF key.keys > 1 THEN
        RETURN @schema@.queue_message_fold_some(seqs, 10, clock, until);
    ELSIF state = 'KEY01' THEN
        RETURN @schema@.queue_message_fold_list(seqs, clock, until, fresh => true);
    ELSIF state NOT IN ('KEY02', 'KEY03') THEN
        PERFORM @schema@.queue_message_keyed_failed(seqs, clock, @schema@.queue_message_why(state, words));
        RETURN 0;
    ELSIF key.bundled AND cardinality(seqs) > 1 THEN
        RETURN @schema@.queue_message_fold_pieces(seqs, clock, until, halves => true);
    END IF;
    PERFORM @schema@.queue_message_keyed_supersede(seqs);
    INSERT INTO @schema@.queue_message_coalesced (exchange, coalesce_key, message_id, seq, folded_at)
    SELECT k.exchange, k.coalesce_key, k.id, k.seq, greatest(clock, clock_timestamp())
    FROM @schema@.queue_message_keyed_row k WHERE k.seq = newest AND k.coalesce_key IS NOT NULL
    ON CONFLICT ON CONSTRAINT queue_message_coalesced_pkey DO UPDATE SET seq = excluded.seq, folded_at = excluded.folded_at;
    PERFORM @schema@.queue_message_keyed_archive(
        ARRAY[newest], 'rejected', CASE state WHEN 'KEY03' THEN 'body_too_large' ELSE 'refused' END, words, 'fold');
    RETURN cardinality(seqs);
END
$body$;

-- As before, but small keys first, for a second where large ones are due too, and of the large ones a list at least: neither waits for all of
-- the other. Plans are kept for a session, and one that was made while a table was nearly empty would scan the whole of it later; hence no
-- sequential scans.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold(now timestamptz DEFAULT NULL, most integer DEFAULT 10000,
    OUT folded bigint, OUT next_at timestamptz, OUT superseded bigint, OUT bundled bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    until timestamptz := clock_timestamp() + interval '2 s';
    large boolean;
BEGIN
    folded := 0;
    IF EXISTS (SELECT FROM @schema@.queue_message_keyed_row k WHERE k.due_at <= clock) AND @schema@.queue_message_take_turn('fold') THEN
        large := EXISTS (SELECT FROM @schema@.queue_message_keyed_row k WHERE k.large AND k.due_at <= clock);
        folded := @schema@.queue_message_fold_some(@schema@.queue_message_keyed_due(clock, most, false), 1, clock,
            until - CASE WHEN large THEN interval '1 s' ELSE '0 s' END, large => false);
        IF large THEN
            folded := folded + @schema@.queue_message_fold_large(clock, 1 + most / 10, until);
        END IF;
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
