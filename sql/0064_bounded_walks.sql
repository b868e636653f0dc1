-- What folds, schedules, gauges and scans take turns with on a relay's session is bounded in what it walks, and not only in what it finds: keys that
-- retention must keep, parked keys, and contents that take long to print.

-- How far retention has come through the coalesce keys, by the time of their last fold; from when it begins anew; and whether more of them are old
-- than it has looked at. Not folded_at itself: a fold tells by it whether a message came late.
ALTER TABLE @schema@.queue_message_walk
    ADD COLUMN past timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN again_at timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN more boolean NOT NULL DEFAULT false;
INSERT INTO @schema@.queue_message_walk (name) VALUES ('coalesced');

-- Deletes of the next 50,000 coalesce keys under which nothing was sent for a day those whose message waits no more; returns how many. Those that
-- stay are passed, and looked at again when a round begins: a day after the last one began, once that has ended. A fold sends no two keys at the
-- same time, so what is taken with ties is hardly more. Two of these at once do not wait for each other.
CREATE FUNCTION @schema@.queue_message_delete_coalesced(clock timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    most constant integer := 50000;
    walk record;
    page record;
BEGIN
    -- The row is missing where only the schema was restored.
    IF NOT EXISTS (SELECT FROM @schema@.queue_message_walk w WHERE w.name = 'coalesced') THEN
        INSERT INTO @schema@.queue_message_walk (name) VALUES ('coalesced') ON CONFLICT DO NOTHING;
    END IF;
    SELECT w.past, w.again_at, w.more INTO walk FROM @schema@.queue_message_walk w WHERE w.name = 'coalesced' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- A round that is to begin later than in a day is one of a clock that was set back since.
    IF NOT walk.more AND (clock >= walk.again_at OR clock < walk.again_at - interval '1 day') THEN
        walk.past := '-infinity';
        walk.again_at := clock + interval '1 day';
    END IF;
    WITH old AS MATERIALIZED (
        SELECT c.ctid AS place, c.exchange, c.coalesce_key, c.message_id, c.folded_at FROM @schema@.queue_message_coalesced c
        WHERE c.folded_at > walk.past AND c.folded_at <= clock - interval '1 day'
        ORDER BY c.folded_at FETCH FIRST (most) ROWS WITH TIES
    ), gone AS (
        DELETE FROM @schema@.queue_message_coalesced c WHERE c.ctid = ANY (ARRAY(
            SELECT same.ctid FROM old JOIN @schema@.queue_message_coalesced same ON same.ctid = old.place AND same.folded_at = old.folded_at
            WHERE NOT EXISTS (SELECT FROM @schema@.queue_message m WHERE m.id = old.message_id)
              AND NOT EXISTS (SELECT FROM @schema@.queue_message_keyed_row k WHERE (k.exchange, k.coalesce_key) = (old.exchange, old.coalesce_key))
            FOR UPDATE OF same SKIP LOCKED))
        RETURNING c.folded_at
    )
    SELECT (SELECT count(*) FROM gone) AS gone, count(*) AS looked, max(old.folded_at) AS last INTO page FROM old;
    UPDATE @schema@.queue_message_walk w
    SET past = coalesce(page.last, walk.past), again_at = walk.again_at, more = page.looked >= most WHERE w.name = 'coalesced';
    RETURN page.gone;
END
$body$;

-- As before, but of coalesce keys it looks at 50,000, whatever becomes of them.
CREATE OR REPLACE FUNCTION @schema@.queue_message_delete_keys(clock timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    known bigint;
BEGIN
    DELETE FROM @schema@.queue_message_dedup d WHERE d.ctid = ANY (ARRAY(
        SELECT old.ctid FROM @schema@.queue_message_dedup old WHERE old.until <= clock ORDER BY old.until LIMIT 50000 FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS known = ROW_COUNT;
    RETURN known + @schema@.queue_message_delete_coalesced(clock);
END
$body$;

-- As before, and says where more coalesce keys are old than one call looks at: then the next one goes on, also where this one has deleted none.
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
    IF EXISTS (SELECT FROM @schema@.queue_message_walk w WHERE w.more) THEN
        action := 'unfinished';
        target := 'queue_message_coalesced';
        messages := NULL;
        RETURN NEXT;
    END IF;
    FOR target IN SELECT o FROM @schema@.queue_message_old_days(clock) o LOOP
        SELECT d.action, d.messages INTO action, messages FROM @schema@.queue_message_drop_day(target, exported) d;
        RETURN NEXT;
        EXIT WHEN action IN ('dropped', 'busy');
    END LOOP;
END
$body$;

-- How many messages wait behind the head of an ordering key, counted up to 10,000.
CREATE FUNCTION @schema@.queue_message_behind(ordering_key text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    SELECT greatest(count(*) - 1, 0) FROM (
        SELECT FROM @schema@.queue_message b WHERE b.ordering_key = queue_message_behind.ordering_key LIMIT 10001) AS first
$body$;

-- The keys that queue_message_blocked_key below describes, with their heads: of those that are parked so many, by their names, and those of paused
-- exchanges only on demand.
CREATE FUNCTION @schema@.queue_message_blocked(most integer, paused boolean) RETURNS TABLE (ordering_key text, why text, head_id uuid, exchange text,
    routing_key text, attempts integer, available_at timestamptz, last_error text, held_at timestamptz, held_by text, reason text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET jit = off AS $body$
    WITH RECURSIVE head AS (
        (SELECT m.ordering_key, m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.lock_expires_at, m.last_error, 1 AS place
         FROM @schema@.queue_message m
         WHERE m.ordering_key IS NOT NULL AND queue_message_blocked.paused AND EXISTS (SELECT FROM @schema@.queue_message_pause)
         ORDER BY m.ordering_key, m.xid, m.seq LIMIT 1)
        UNION ALL
        SELECT n.* FROM head CROSS JOIN LATERAL (
            SELECT m.ordering_key, m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.lock_expires_at, m.last_error,
                head.place + 1
            FROM @schema@.queue_message m WHERE head.place < 10000 AND m.ordering_key > head.ordering_key
            ORDER BY m.ordering_key, m.xid, m.seq LIMIT 1) n
    )
    SELECT head.ordering_key, 'exchange paused', head.id, head.exchange, head.routing_key, head.attempts, head.available_at, head.last_error,
        p.paused_at, p.paused_by, p.reason
    FROM head JOIN @schema@.queue_message_pause p ON p.exchange = head.exchange
    WHERE head.lock_expires_at IS NULL AND (head.available_at IS NULL OR head.available_at <= now())
      AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold h WHERE h.ordering_key = head.ordering_key)
    UNION ALL
    SELECT k.ordering_key, CASE WHEN h.ordering_key IS NOT NULL THEN 'parked' ELSE 'head waits' END,
        head.id, head.exchange, head.routing_key, head.attempts, head.available_at, head.last_error, h.held_at, h.held_by, h.reason
    FROM (
        SELECT w.ordering_key FROM @schema@.queue_message_waiting_heads() AS w (ordering_key)
        UNION (SELECT h.ordering_key FROM @schema@.queue_message_key_hold h ORDER BY h.ordering_key LIMIT queue_message_blocked.most)
    ) k
    LEFT JOIN @schema@.queue_message_key_hold h ON h.ordering_key = k.ordering_key
    LEFT JOIN LATERAL (
        SELECT m.ordering_key, m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.last_error FROM @schema@.queue_message m
        WHERE m.ordering_key >= k.ordering_key ORDER BY m.ordering_key, m.xid, m.seq LIMIT 1) head ON head.ordering_key = k.ordering_key
$body$;

-- As before; what waits behind a key is counted only where somebody asks for it.
CREATE OR REPLACE VIEW @schema@.queue_message_blocked_key AS
    SELECT b.ordering_key, b.why, b.head_id, b.exchange, b.routing_key, b.attempts, b.available_at, b.last_error, b.held_at, b.held_by, b.reason,
        @schema@.queue_message_behind(b.ordering_key) AS behind
    FROM @schema@.queue_message_blocked(2147483647, true) b;

-- As before, but of parked keys it counts 10,000.
CREATE OR REPLACE VIEW @schema@.queue_message_status AS
    SELECT n.waiting, n.locked, n.delayed, greatest(n.waiting - n.locked - n.delayed, 0) AS ready, n.counted,
        greatest(extract(epoch FROM now() - CASE WHEN isfinite(o.since) THEN o.since END), 0)::double precision AS oldest_seconds,
        @schema@.queue_message_dead_open() AS dead_unacknowledged,
        (SELECT count(*) FROM (
            SELECT w.ordering_key FROM @schema@.queue_message_waiting_heads() AS w (ordering_key)
            UNION (SELECT h.ordering_key FROM @schema@.queue_message_key_hold h LIMIT 10000)) AS blocked) AS blocked_keys,
        (SELECT count(*) FROM @schema@.queue_message_pause) AS paused_exchanges,
        (SELECT count(*) FROM @schema@.queue_message_limit) AS limited_exchanges,
        @schema@.queue_message_suspects() AS suspects,
        (SELECT count(*) FROM @schema@.queue_message_relay_state s WHERE s.alive) AS relays_alive,
        @schema@.queue_message_days_ahead() AS partition_days_ahead,
        pg_notification_queue_usage() AS notification_queue_usage,
        -- Of a registered export; of what it compared, only partitions that are still here.
        @schema@.queue_message_export_lag() AS export_lag_seconds,
        @schema@.queue_message_days_unverified() AS export_unverified_days,
        (SELECT count(*) FROM @schema@.queue_message_export e WHERE e.damage IS NOT NULL OR (e.difference IS NOT NULL
         AND to_regclass(format('%I.%I', @schema_literal@::text, e.partition)) IS NOT NULL)) AS export_differing_partitions
    FROM @schema@.queue_message_count() n, @schema@.queue_message_oldest() AS o (since);

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_64;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_64() p
    UNION ALL SELECT kind, 'EXECUTE ON FUNCTION %1$I.queue_message_blocked, %1$I.queue_message_behind'
    FROM unnest(ARRAY['queue_message_relay', 'queue_message_operator', 'queue_message_etl']) AS kind
$body$;

-- How many of what is due or claimed next a call below has looked at that ran out of time: the next one leaves out so many (seq).
INSERT INTO @schema@.queue_message_walk (name) VALUES ('reject_unprintable near');

-- Archives a message that no client can be handed; returns how many, 0 or 1.
CREATE FUNCTION @schema@.queue_message_reject_one(message uuid, exchange text, routing_key text, ordering_key text, content jsonb, options jsonb)
    RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM octet_length(content::text);
    IF getdatabaseencoding() <> 'UTF8' THEN
        PERFORM @schema@.queue_message_to_utf8(exchange, routing_key, ordering_key, content, options);
    END IF;
    RETURN 0;
EXCEPTION WHEN program_limit_exceeded THEN
    RETURN @schema@.queue_message_archive_now(
        ARRAY[message], 'rejected', 'content_unprintable', 'content is larger than a gigabyte as text: write its numbers shorter.', 'relay');
WHEN untranslatable_character OR character_not_in_repertoire THEN
    RETURN @schema@.queue_message_archive_now(
        ARRAY[message], 'rejected', 'content_unprintable', @schema@.queue_message_unwritable('the message'), 'relay');
END
$body$;

-- Tries what came due first, and what each living relay claims next: so many of each, for a second, and one at least.
CREATE FUNCTION @schema@.queue_message_reject_near(most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    until constant timestamptz := clock_timestamp() + interval '1 s';
    begun constant bigint := (SELECT w.seq FROM @schema@.queue_message_walk w WHERE w.name = 'reject_unprintable near');
    one record;
    gone bigint;
    looked bigint := begun;
    skipped bigint := 0;
    rejected bigint := 0;
BEGIN
    FOR one IN SELECT near.* FROM (
        (SELECT m.id, m.exchange, m.routing_key, m.ordering_key, m.content, m.options, m.lock_expires_at FROM @schema@.queue_message m
         WHERE m.available_at <= now() ORDER BY m.available_at LIMIT most)
        UNION ALL
        SELECT next.* FROM @schema@.queue_message_claim_places() AS place (xid, seq) CROSS JOIN LATERAL (
            SELECT m.id, m.exchange, m.routing_key, m.ordering_key, m.content, m.options, m.lock_expires_at FROM @schema@.queue_message m
            WHERE (m.xid, m.seq) > (place.xid, place.seq) ORDER BY m.xid, m.seq LIMIT most) next
        ) near OFFSET begun
    LOOP
        gone := CASE WHEN one.lock_expires_at IS NULL THEN @schema@.queue_message_reject_one(
            one.id, one.exchange, one.routing_key, one.ordering_key, one.content, one.options) ELSE 0 END;
        rejected := rejected + gone;
        -- What is gone stands before nothing any more.
        looked := looked + 1 - gone;
        IF clock_timestamp() >= until THEN
            skipped := looked;
            EXIT;
        END IF;
    END LOOP;
    UPDATE @schema@.queue_message_walk w SET seq = skipped WHERE w.name = 'reject_unprintable near' AND w.seq <> skipped;
    RETURN rejected;
END
$body$;

-- Tries the next ones of the whole queue, so many, for a second, and one at least: what takes long to print keeps no walk where it is.
CREATE FUNCTION @schema@.queue_message_reject_page(most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    until constant timestamptz := clock_timestamp() + interval '1 s';
    begun record;
    one record;
    last record;
    walked integer := 0;
    late boolean := false;
    rejected bigint := 0;
BEGIN
    SELECT w.xid, w.seq INTO begun FROM @schema@.queue_message_walk w WHERE w.name = 'reject_unprintable';
    FOR one IN
        SELECT m.xid, m.seq, m.id, m.exchange, m.routing_key, m.ordering_key, m.content, m.options, m.lock_expires_at FROM @schema@.queue_message m
        WHERE (m.xid, m.seq) > (begun.xid, begun.seq) ORDER BY m.xid, m.seq LIMIT most
    LOOP
        walked := walked + 1;
        last := one;
        IF one.lock_expires_at IS NULL THEN
            rejected := rejected + @schema@.queue_message_reject_one(
                one.id, one.exchange, one.routing_key, one.ordering_key, one.content, one.options);
        END IF;
        late := clock_timestamp() >= until;
        EXIT WHEN late;
    END LOOP;
    IF late OR walked = most THEN
        UPDATE @schema@.queue_message_walk w SET xid = last.xid, seq = last.seq WHERE w.name = 'reject_unprintable';
    ELSE
        UPDATE @schema@.queue_message_walk w SET xid = '0', seq = 0 WHERE w.name = 'reject_unprintable';
    END IF;
    RETURN rejected;
END
$body$;

-- As before, but a call takes some two seconds, whatever the contents are, and the time of one content at the most.
CREATE OR REPLACE FUNCTION @schema@.queue_message_reject_unprintable(most integer DEFAULT 20000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM FROM @schema@.queue_message_walk w WHERE w.name = 'reject_unprintable' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    RETURN @schema@.queue_message_reject_near(most) + @schema@.queue_message_reject_page(most);
END
$body$;

-- As before: all of the queue, from its beginning, after whoever is at it.
CREATE OR REPLACE FUNCTION @schema@.queue_message_mend_letters() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    mended bigint := 0;
    retention text := coalesce(current_setting('relay.retention', true), '');
BEGIN
    UPDATE @schema@.queue_message_walk w SET xid = '0', seq = 0 WHERE w.name = 'reject_unprintable';
    LOOP
        mended := mended + @schema@.queue_message_reject_page(2147483647);
        EXIT WHEN EXISTS (SELECT FROM @schema@.queue_message_walk w WHERE w.name = 'reject_unprintable' AND w.xid = '0');
    END LOOP;
    PERFORM set_config('relay.retention', 'on', true);
    FOR one IN SELECT a.tableoid, a.ctid, a.* FROM @schema@.queue_message_archive a LOOP
        BEGIN
            PERFORM @schema@.queue_message_to_utf8(one.exchange, one.routing_key, one.ordering_key, one.content, one.options);
            PERFORM convert_to(concat_ws(' ', one.error_code, one.error_detail, one.handled_by), 'UTF8');
        EXCEPTION
            WHEN program_limit_exceeded THEN NULL;
            WHEN untranslatable_character OR character_not_in_repertoire THEN
                WITH gone AS (
                    DELETE FROM @schema@.queue_message_archive a WHERE a.tableoid = one.tableoid AND a.ctid = one.ctid RETURNING a.*
                ) INSERT INTO @schema@.queue_message_archive SELECT g.* FROM gone g;
                mended := mended + 1;
        END;
    END LOOP;
    PERFORM set_config('relay.retention', retention, true);
    RETURN mended;
END
$body$;
