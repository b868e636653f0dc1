-- A fold begins where the first message was due that it can see. Before that lie messages that were folded and that an old snapshot keeps: each
-- fold walked past all of them six times, 0.7 s for each million.

-- As before, from a time on: no message is due before it.
DROP FUNCTION @schema@.queue_message_keyed_due(timestamptz, integer, boolean);
CREATE FUNCTION @schema@.queue_message_keyed_due(clock timestamptz, most integer, large boolean, since timestamptz) RETURNS bigint[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    UPDATE @schema@.queue_message_keyed_row k SET due_at = k.due_at + interval '1 us' WHERE k.seq = ANY (ARRAY(
        SELECT k.seq FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (ARRAY(
            SELECT o.seq FROM (
                SELECT k.seq, k.due_at, k.available_at FROM @schema@.queue_message_keyed_row k
                WHERE k.large = queue_message_keyed_due.large AND k.due_at < queue_message_keyed_due.clock
                    AND k.due_at >= queue_message_keyed_due.since
                ORDER BY k.due_at LIMIT queue_message_keyed_due.most) o
            WHERE o.available_at >= o.due_at)) FOR UPDATE SKIP LOCKED));
    WITH oldest AS MATERIALIZED (
        SELECT k.seq, k.exchange, k.coalesce_key, k.bundle_key, k.routing_key, k.due_at FROM @schema@.queue_message_keyed_row k
        WHERE k.large = queue_message_keyed_due.large AND k.due_at <= queue_message_keyed_due.clock
            AND k.due_at >= queue_message_keyed_due.since
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

-- As before, from a time on.
DROP FUNCTION @schema@.queue_message_keyed_leave(bigint[], timestamptz, integer);
CREATE FUNCTION @schema@.queue_message_keyed_leave(seqs bigint[], clock timestamptz, most integer, since timestamptz) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    UPDATE @schema@.queue_message_keyed_row k SET large = true
    WHERE NOT k.large AND k.seq = ANY (queue_message_keyed_leave.seqs || ARRAY(
        SELECT small.seq FROM (
            SELECT s.seq, s.exchange, s.routing_key, s.bundle_key FROM @schema@.queue_message_keyed_row s
            WHERE NOT s.large AND s.due_at <= queue_message_keyed_leave.clock AND s.due_at >= queue_message_keyed_leave.since
            ORDER BY s.due_at LIMIT queue_message_keyed_leave.most FOR UPDATE SKIP LOCKED) small
        JOIN (SELECT DISTINCT l.exchange, l.routing_key, l.bundle_key FROM @schema@.queue_message_keyed_row l
              WHERE l.seq = ANY (queue_message_keyed_leave.seqs)) key USING (exchange, routing_key, bundle_key)))
$body$;

-- As before, from a time on.
DROP FUNCTION @schema@.queue_message_fold_some(bigint[], integer, timestamptz, timestamptz, boolean);
CREATE FUNCTION @schema@.queue_message_fold_some(seqs bigint[], lists integer, clock timestamptz, until timestamptz, large boolean DEFAULT true,
    since timestamptz DEFAULT '-infinity') RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    folded bigint := 0;
BEGIN
    FOR one IN SELECT * FROM @schema@.queue_message_keyed_split(seqs, lists) LOOP
        IF one.large AND NOT large THEN
            PERFORM @schema@.queue_message_keyed_leave(one.list, clock, cardinality(seqs), since);
        ELSE
            folded := folded + CASE WHEN one.cut THEN @schema@.queue_message_fold_pieces(one.list, clock, until)
                ELSE @schema@.queue_message_fold_list(one.list, clock, until) END;
        END IF;
        EXIT WHEN clock_timestamp() > until;
    END LOOP;
    RETURN folded;
END
$body$;

-- As before, from a time on.
DROP FUNCTION @schema@.queue_message_fold_large(timestamptz, integer, timestamptz);
CREATE FUNCTION @schema@.queue_message_fold_large(clock timestamptz, most integer, until timestamptz, since timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    due bigint[] := @schema@.queue_message_keyed_due(clock, most, true, since);
BEGIN
    PERFORM @schema@.queue_message_keyed_measure_some(due, until);
    RETURN @schema@.queue_message_fold_some(@schema@.queue_message_keyed_first(due), 1, clock, until);
END
$body$;

-- As before, but of messages that are due since a time. Who gives none has all that is due folded.
DROP FUNCTION @schema@.queue_message_fold(timestamptz, integer);
CREATE FUNCTION @schema@.queue_message_fold(now timestamptz DEFAULT NULL, most integer DEFAULT 10000, since timestamptz DEFAULT '-infinity',
    OUT folded bigint, OUT next_at timestamptz, OUT superseded bigint, OUT bundled bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    until timestamptz := clock_timestamp() + interval '2 s';
    large boolean;
BEGIN
    folded := 0;
    IF EXISTS (SELECT FROM @schema@.queue_message_keyed_row k WHERE k.due_at BETWEEN since AND clock) AND @schema@.queue_message_take_turn('fold') THEN
        large := EXISTS (SELECT FROM @schema@.queue_message_keyed_row k WHERE k.large AND k.due_at BETWEEN since AND clock);
        folded := @schema@.queue_message_fold_some(@schema@.queue_message_keyed_due(clock, most, false, since), 1, clock,
            until - CASE WHEN large THEN interval '1 s' ELSE '0 s' END, large => false, since => since);
        IF large THEN
            folded := folded + @schema@.queue_message_fold_large(clock, 1 + most / 10, until, since);
        END IF;
    END IF;
    SELECT min(k.due_at) INTO next_at FROM @schema@.queue_message_keyed_row k WHERE k.due_at >= since;
    superseded := 0;
    bundled := 0;
    IF folded > 0 THEN
        SELECT count(*) FILTER (WHERE a.error_code = 'superseded'), count(*) FILTER (WHERE a.error_code = 'bundled') INTO superseded, bundled
        FROM @schema@.queue_message_archive a WHERE a.archived_xid = pg_current_xact_id();
    END IF;
END
$body$;
