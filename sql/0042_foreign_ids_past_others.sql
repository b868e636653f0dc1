-- Renumbering goes past messages that another session holds or that a trigger refuses. They stay with their old ids until a later walk, and so does
-- what stands behind them under their ordering keys; everything else is renumbered.

-- The first message that stayed behind in this walk, and why.
ALTER TABLE @schema@.queue_message_cluster ADD COLUMN held_xid xid8, ADD COLUMN held_seq bigint, ADD COLUMN held_why text;

DROP FUNCTION @schema@.queue_message_renumber(integer);
DROP FUNCTION @schema@.queue_message_renumber_step(integer);
DROP FUNCTION @schema@.queue_message_renumber_page(bigint, xid8, bigint, integer);

-- The next messages in claim order: by whom each row was written, and whether it was rewritten. Sweeps leave locked_by, retries available_at.
CREATE FUNCTION @schema@.queue_message_renumber_page(own bigint, after_xid xid8, after_seq bigint, most integer)
RETURNS TABLE (xid xid8, seq bigint, ordering_key text, number bigint, brought bigint, locked_by integer, claimed boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    SELECT m.xid, m.seq, m.ordering_key, m.xid::text::bigint, @schema@.queue_message_written_by(queue_message_renumber_page.own, m.xmin),
        m.locked_by, m.locked_by IS NOT NULL OR m.available_at IS NOT NULL
    FROM @schema@.queue_message m
    WHERE (m.xid, m.seq) > (queue_message_renumber_page.after_xid, queue_message_renumber_page.after_seq)
    ORDER BY m.xid, m.seq LIMIT queue_message_renumber_page.most
$body$;

-- Locks these messages and returns how many: those that another session holds are left out.
CREATE FUNCTION @schema@.queue_message_renumber_lock(xids xid8[], seqs bigint[]) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
    SELECT count(*) FROM unnest(xids, seqs) AS place (xid, seq) CROSS JOIN LATERAL (
        SELECT FROM @schema@.queue_message m WHERE m.xid = place.xid AND m.seq = place.seq FOR UPDATE SKIP LOCKED) locked
$body$;

-- Gives these messages the id 2 and new numbers in their order; returns how many got them. One UPDATE by a nested loop, which was four times as
-- fast as one for each message and keeps the order; that it did is checked. A restore may have set the sequence back since the last page.
CREATE FUNCTION @schema@.queue_message_renumber_move(xids xid8[], seqs bigint[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    highest bigint := (SELECT m.seq FROM @schema@.queue_message m WHERE m.xid = '2' ORDER BY m.xid DESC, m.seq DESC LIMIT 1);
    renumbered bigint;
    astray boolean;
BEGIN
    PERFORM @schema@.queue_message_advance(
        pg_get_serial_sequence(format('%I.%I', @schema_literal@::text, 'queue_message'), 'seq')::regclass, highest);
    WITH given AS MATERIALIZED (
        SELECT g.xid, g.seq FROM unnest(queue_message_renumber_move.xids, queue_message_renumber_move.seqs) AS g (xid, seq)
    ), moved AS (
        UPDATE @schema@.queue_message m SET xid = '2', seq = DEFAULT FROM given g WHERE m.xid = ANY (ARRAY[g.xid]) AND m.seq = g.seq
        RETURNING g.xid, g.seq, m.seq AS new_seq
    ), placed AS (
        SELECT n.new_seq < lag(n.new_seq, 1, highest) OVER (ORDER BY n.xid, n.seq) AS astray FROM moved n
    )
    SELECT count(*), coalesce(bool_or(p.astray), false) INTO renumbered, astray FROM placed p;
    IF astray THEN
        RAISE EXCEPTION 'Messages of another cluster were not renumbered in their order; nothing was changed.' USING ERRCODE = 'internal_error';
    END IF;
    RETURN renumbered;
END
$body$;

-- The same one by one, past what another session holds and what a trigger refuses or skips; these, and what stands behind them under their keys,
-- stay. Returns how many were renumbered, which was the first that stayed, and why.
CREATE FUNCTION @schema@.queue_message_renumber_past(xids xid8[], seqs bigint[], keys text[], OUT renumbered bigint, OUT held integer, OUT why text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    held_keys text[] := '{}';
    trouble text;
    relation text;
    named text;
BEGIN
    renumbered := 0;
    FOR place IN 1 .. cardinality(xids) LOOP
        CONTINUE WHEN keys[place] = ANY (held_keys);
        trouble := 'another session holds it';
        IF @schema@.queue_message_renumber_lock(xids[place:place], seqs[place:place]) = 1 THEN
            BEGIN
                trouble := 'a trigger skips it';
                IF @schema@.queue_message_renumber_move(xids[place:place], seqs[place:place]) = 1 THEN
                    trouble := NULL;
                END IF;
            EXCEPTION WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS relation = TABLE_NAME, named = CONSTRAINT_NAME;
                IF @schema@.queue_message_meets_all(SQLSTATE, relation, named) THEN
                    RAISE;
                END IF;
                trouble := @schema@.queue_message_why(SQLSTATE, SQLERRM);
            END;
        END IF;
        IF trouble IS NULL THEN
            renumbered := renumbered + 1;
        ELSE
            held_keys := held_keys || array_remove(keys[place:place], NULL);
            why := CASE WHEN held IS NULL THEN trouble ELSE why END;
            held := coalesce(held, place);
        END IF;
    END LOOP;
END
$body$;

-- All of these at once, or one by one where some stay; as queue_message_renumber_past.
CREATE FUNCTION @schema@.queue_message_renumber_these(xids xid8[], seqs bigint[], keys text[], OUT renumbered bigint, OUT held integer, OUT why text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    relation text;
    named text;
BEGIN
    IF @schema@.queue_message_renumber_lock(xids, seqs) = cardinality(xids) THEN
        BEGIN
            renumbered := @schema@.queue_message_renumber_move(xids, seqs);
            IF renumbered = cardinality(xids) THEN
                RETURN;
            END IF;
            RAISE EXCEPTION 'A trigger skips some.';
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS relation = TABLE_NAME, named = CONSTRAINT_NAME;
            IF @schema@.queue_message_meets_all(SQLSTATE, relation, named) THEN
                RAISE;
            END IF;
        END;
    END IF;
    SELECT p.renumbered, p.held, p.why INTO renumbered, held, why FROM @schema@.queue_message_renumber_past(xids, seqs, keys) p;
END
$body$;

-- A page of the second pass. Messages get the id 2, which no transaction has (the first one is 3), and new numbers; so they stand before what was
-- inserted here, and behind what was renumbered before. Locks stay and expire: a message that stood still because of its lock would be
-- overtaken by its ordering key's next. What the same transactions brought with lower ids goes along, because it stood before them. What
-- came after the first pass waits for a walk of its own: a part of it stands behind the place of this one, and must not be overtaken by the
-- rest. A row that a sweep, a claim or a retry rewrote since no longer tells who brought it: one that stands below goes along even if it is an own
-- one, which changes no order. What stands behind one of its key that stayed in an earlier page stays too.
CREATE FUNCTION @schema@.queue_message_renumber_step(most integer, OUT renumbered bigint, OUT looked bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    own bigint := pg_current_xact_id()::text::bigint;
    walk @schema@.queue_message_cluster;
    page record;
    done record;
BEGIN
    SELECT c.* INTO walk FROM @schema@.queue_message_cluster c;
    WITH page AS MATERIALIZED (
        SELECT p.* FROM @schema@.queue_message_renumber_page(own, walk.walked_xid, walk.walked_seq, most) p
    ), foreign_ids AS (
        SELECT p.xid, p.seq, p.ordering_key FROM page p
        WHERE (p.number > p.brought OR p.number < walk.first_brought)
          AND (p.brought BETWEEN walk.first_brought AND walk.last_brought
               OR p.locked_by IS NOT NULL AND p.number > p.brought
               OR p.claimed AND p.number < walk.first_brought AND p.brought > walk.last_brought)
          AND NOT (walk.held_xid IS NOT NULL AND p.ordering_key IS NOT NULL AND EXISTS (
              SELECT FROM @schema@.queue_message h WHERE h.ordering_key = p.ordering_key
                AND (h.xid, h.seq) >= (walk.held_xid, walk.held_seq) AND (h.xid, h.seq) <= (walk.walked_xid, walk.walked_seq)))
    )
    SELECT f.xids, f.seqs, f.keys, p.looked, p.last_xid, p.last_seq INTO page
    FROM (SELECT array_agg(f.xid ORDER BY f.xid, f.seq) AS xids, array_agg(f.seq ORDER BY f.xid, f.seq) AS seqs,
              array_agg(f.ordering_key ORDER BY f.xid, f.seq) AS keys FROM foreign_ids f) f,
         (SELECT count(*) AS looked, max(p.xid) AS last_xid, (array_agg(p.seq ORDER BY p.xid DESC, p.seq DESC))[1] AS last_seq FROM page p) p;
    -- Not a SET clause of the function: only a superuser may write one for a name that no extension has declared.
    PERFORM set_config('relay.renumber', 'on', true);
    SELECT t.* INTO done FROM @schema@.queue_message_renumber_these(coalesce(page.xids, '{}'), coalesce(page.seqs, '{}'), page.keys) t;
    PERFORM set_config('relay.renumber', 'off', true);
    renumbered := done.renumbered;
    looked := page.looked;
    UPDATE @schema@.queue_message_cluster c
    SET walked_xid = coalesce(page.last_xid, c.walked_xid), walked_seq = coalesce(page.last_seq, c.walked_seq),
        held_xid = coalesce(c.held_xid, page.xids[done.held]), held_seq = coalesce(c.held_seq, page.seqs[done.held]),
        held_why = coalesce(c.held_why, done.why);
END
$body$;

-- Ends a walk; returns which message stayed first and why, null for none.
CREATE FUNCTION @schema@.queue_message_renumber_end() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    stays text := (SELECT format('message %s stays: %s', coalesce(m.id::text, 'that is gone'), c.held_why)
        FROM @schema@.queue_message_cluster c LEFT JOIN @schema@.queue_message m ON (m.xid, m.seq) = (c.held_xid, c.held_seq)
        WHERE c.held_xid IS NOT NULL);
BEGIN
    UPDATE @schema@.queue_message_cluster
    SET first_brought = NULL, last_brought = NULL, walked_xid = NULL, walked_seq = NULL, held_xid = NULL, held_seq = NULL, held_why = NULL;
    RETURN stays;
END
$body$;

-- Looks at up to most messages and renumbers those of another cluster; call again while there are more. One caller at a time works on it:
-- looked is null where it is another's turn. A look that another cluster began, as in a dump of then, begins again. A walk that ends with messages
-- that had to stay says of the first of them why, and that nothing more can be done now; a later call begins another walk.
CREATE FUNCTION @schema@.queue_message_renumber(
    most integer DEFAULT 1000, OUT renumbered bigint, OUT more boolean, OUT looked bigint, OUT stays text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $body$
#variable_conflict use_variable
DECLARE
    here bigint := @schema@.queue_message_cluster_here();
BEGIN
    IF (most >= 1) IS NOT TRUE THEN
        RAISE EXCEPTION 'At least 1 message is looked at in a call, not %.', coalesce(most::text, 'NULL');
    END IF;
    renumbered := 0;
    more := @schema@.queue_message_has_foreign_ids();
    IF NOT more OR NOT @schema@.queue_message_take_turn('renumber') THEN
        RETURN;
    END IF;
    IF (SELECT bool_and(c.system_identifier = here AND c.walked_xid IS NOT NULL) FROM @schema@.queue_message_cluster c) IS NOT TRUE THEN
        -- Another caller may have ended the walk just now.
        more := @schema@.queue_message_has_foreign_ids();
        IF NOT more THEN
            RETURN;
        END IF;
        PERFORM @schema@.queue_message_renumber_begin(here);
    END IF;
    IF (SELECT c.looking FROM @schema@.queue_message_cluster c) THEN
        looked := @schema@.queue_message_renumber_look(most);
    ELSE
        SELECT s.renumbered, s.looked INTO renumbered, looked FROM @schema@.queue_message_renumber_step(most) s;
        IF looked < most THEN
            stays := @schema@.queue_message_renumber_end();
        END IF;
    END IF;
    -- Something may have come while this went on, below what was looked at.
    more := stays IS NULL AND @schema@.queue_message_has_foreign_ids();
END
$body$;
