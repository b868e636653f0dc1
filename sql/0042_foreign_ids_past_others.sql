-- Renumbering goes past messages that another session holds or that a trigger refuses. They stay with their old ids until a later walk, and so does
-- what stands behind them under their ordering keys; everything else is renumbered. And searches for the heads of keys look for renumbered messages only
-- where some may be left: they walked the index entries of all that were sent, for as long as a session held an old snapshot.

-- The first message that stayed behind in this walk, and why.
ALTER TABLE @schema@.queue_message_cluster ADD COLUMN held_xid xid8, ADD COLUMN held_seq bigint, ADD COLUMN held_why text;
-- The keys of messages that stayed behind in this walk.
CREATE TABLE @schema@.queue_message_cluster_key (ordering_key text PRIMARY KEY);
COMMENT ON TABLE @schema@.queue_message_cluster_key IS 'While messages are renumbered: keys whose messages stay behind one that had to.';

-- No renumbered message has a higher number; 0 where none is left. Renumbering sets it to the highest there is, and each call that has nothing else to
-- do notes what is left. A restore may bring messages that were renumbered elsewhere.
ALTER TABLE @schema@.queue_message_cluster ADD COLUMN renumbered_to bigint NOT NULL DEFAULT 9223372036854775807;

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

-- Begins on the left: moves the sequences and silences foreign relays.
CREATE OR REPLACE FUNCTION @schema@.queue_message_renumber_begin(here bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    PERFORM @schema@.queue_message_advance(s.sequence, s.used) FROM @schema@.queue_message_sequences() s;
    PERFORM @schema@.queue_message_silence_foreign_relays(here);
    DELETE FROM @schema@.queue_message_cluster_key;
    DELETE FROM @schema@.queue_message_cluster;
    INSERT INTO @schema@.queue_message_cluster (system_identifier, looking, walked_xid, walked_seq)
    VALUES (here, true, '0', -9223372036854775808);
END
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

-- Notes that a message stays behind, and with it what stands behind it under its key. One that is gone meanwhile does not.
CREATE FUNCTION @schema@.queue_message_renumber_hold(xid xid8, seq bigint, key text, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
BEGIN
    IF EXISTS (SELECT FROM @schema@.queue_message m WHERE m.xid = queue_message_renumber_hold.xid AND m.seq = queue_message_renumber_hold.seq) THEN
        UPDATE @schema@.queue_message_cluster c
        SET held_xid = queue_message_renumber_hold.xid, held_seq = queue_message_renumber_hold.seq, held_why = why WHERE c.held_xid IS NULL;
        INSERT INTO @schema@.queue_message_cluster_key (ordering_key) SELECT key WHERE key IS NOT NULL ON CONFLICT DO NOTHING;
    END IF;
END
$body$;

-- Renumbers these messages, but for those that another session holds or a trigger refuses or skips, and what stands behind these under their keys.
-- All at once; where that fails in halves, the left one first, until what must stay stands alone. Returns how many were renumbered.
CREATE FUNCTION @schema@.queue_message_renumber_these(xids xid8[], seqs bigint[], keys text[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    total integer;
    half integer;
    renumbered bigint;
    trouble text := 'another session holds it';
    relation text;
    named text;
BEGIN
    SELECT array_agg(g.xid ORDER BY g.n), array_agg(g.seq ORDER BY g.n), array_agg(g.ordering_key ORDER BY g.n), count(*)
    INTO xids, seqs, keys, total FROM unnest(xids, seqs, keys) WITH ORDINALITY AS g (xid, seq, ordering_key, n)
    WHERE NOT EXISTS (SELECT FROM @schema@.queue_message_cluster_key c WHERE c.ordering_key = g.ordering_key);
    IF total = 0 THEN
        RETURN 0;
    ELSIF @schema@.queue_message_renumber_lock(xids, seqs) = total THEN
        BEGIN
            IF @schema@.queue_message_renumber_move(xids, seqs) = total THEN
                RETURN total;
            END IF;
            RAISE EXCEPTION 'a trigger skips it';
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS relation = TABLE_NAME, named = CONSTRAINT_NAME;
            IF @schema@.queue_message_meets_all(SQLSTATE, relation, named) THEN
                RAISE;
            END IF;
            trouble := @schema@.queue_message_why(SQLSTATE, SQLERRM);
        END;
    END IF;
    IF total = 1 THEN
        PERFORM @schema@.queue_message_renumber_hold(xids[1], seqs[1], keys[1], trouble);
        RETURN 0;
    END IF;
    half := total / 2;
    renumbered := @schema@.queue_message_renumber_these(xids[:half], seqs[:half], keys[:half]);
    RETURN renumbered + @schema@.queue_message_renumber_these(xids[half + 1:], seqs[half + 1:], keys[half + 1:]);
END
$body$;

-- A page of the second pass. Messages get the id 2, which no transaction has (the first one is 3), and new numbers; so they stand before what was
-- inserted here, and behind what was renumbered before. Locks stay and expire: a message that stood still because of its lock would be
-- overtaken by its ordering key's next. What the same transactions brought with lower ids goes along, because it stood before them. What
-- came after the first pass waits for a walk of its own: a part of it stands behind the place of this one, and must not be overtaken by the
-- rest. A row that a sweep, a claim or a retry rewrote since no longer tells who brought it: the head of a key that
-- stands below goes along even if it is an own one, which changes no order.
CREATE FUNCTION @schema@.queue_message_renumber_step(most integer, OUT renumbered bigint, OUT looked bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    own bigint := pg_current_xact_id()::text::bigint;
    walk @schema@.queue_message_cluster;
    page record;
BEGIN
    SELECT c.* INTO walk FROM @schema@.queue_message_cluster c;
    WITH page AS MATERIALIZED (
        SELECT p.* FROM @schema@.queue_message_renumber_page(own, walk.walked_xid, walk.walked_seq, most) p
    ), foreign_ids AS (
        SELECT p.xid, p.seq, p.ordering_key FROM page p
        WHERE (p.number > p.brought OR p.number < walk.first_brought)
          AND (p.brought BETWEEN walk.first_brought AND walk.last_brought
               OR p.locked_by IS NOT NULL AND p.number > p.brought
               OR p.claimed AND p.number < walk.first_brought AND p.brought > walk.last_brought AND NOT EXISTS (
                   SELECT FROM @schema@.queue_message h WHERE h.ordering_key = p.ordering_key AND (h.xid, h.seq) < (p.xid, p.seq)))
    )
    SELECT f.xids, f.seqs, f.keys, p.looked, p.last_xid, p.last_seq INTO page
    FROM (SELECT array_agg(f.xid ORDER BY f.xid, f.seq) AS xids, array_agg(f.seq ORDER BY f.xid, f.seq) AS seqs,
              array_agg(f.ordering_key ORDER BY f.xid, f.seq) AS keys FROM foreign_ids f) f,
         (SELECT count(*) AS looked, max(p.xid) AS last_xid, (array_agg(p.seq ORDER BY p.xid DESC, p.seq DESC))[1] AS last_seq FROM page p) p;
    -- Not a SET clause of the function: only a superuser may write one for a name that no extension has declared.
    PERFORM set_config('relay.renumber', 'on', true);
    renumbered := @schema@.queue_message_renumber_these(coalesce(page.xids, '{}'), coalesce(page.seqs, '{}'), page.keys);
    PERFORM set_config('relay.renumber', 'off', true);
    looked := page.looked;
    UPDATE @schema@.queue_message_cluster c
    SET walked_xid = coalesce(page.last_xid, c.walked_xid), walked_seq = coalesce(page.last_seq, c.walked_seq);
END
$body$;

-- Ends a walk; returns which message stayed first and why, null for none.
CREATE FUNCTION @schema@.queue_message_renumber_end() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
DECLARE
    stays text := (SELECT format('message %s stays: %s', m.id, c.held_why) FROM @schema@.queue_message_cluster c CROSS JOIN LATERAL (
        SELECT q.id FROM @schema@.queue_message q WHERE q.xid = c.held_xid AND q.seq = c.held_seq OFFSET 0) m
        WHERE c.held_xid IS NOT NULL);
BEGIN
    DELETE FROM @schema@.queue_message_cluster_key;
    UPDATE @schema@.queue_message_cluster
    SET first_brought = NULL, last_brought = NULL, walked_xid = NULL, walked_seq = NULL, held_xid = NULL, held_seq = NULL, held_why = NULL;
    RETURN stays;
END
$body$;

-- The highest number of a renumbered message, 0 where none is left.
CREATE FUNCTION @schema@.queue_message_highest_renumbered() RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    SELECT coalesce((SELECT m.seq FROM @schema@.queue_message m WHERE m.xid = '2' ORDER BY m.xid DESC, m.seq DESC LIMIT 1), 0)
$body$;

-- Notes up to which number renumbered messages are left, if that has changed and nobody renumbers just now.
CREATE FUNCTION @schema@.queue_message_note_renumbered() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF EXISTS (SELECT FROM @schema@.queue_message_cluster c WHERE c.renumbered_to <> @schema@.queue_message_highest_renumbered())
       AND @schema@.queue_message_take_turn('renumber') THEN
        -- Looked up again: whoever had the turn before may have renumbered more.
        UPDATE @schema@.queue_message_cluster c SET renumbered_to = @schema@.queue_message_highest_renumbered();
    END IF;
END
$body$;

-- Looks at up to most messages and renumbers those of another cluster; call again while there are more. One caller at a time works on it:
-- looked is null where it is another's turn. A look that another cluster began, as in a dump of then, begins again. A walk that ends with messages
-- that had to stay says of the first of them why, and that nothing more can be done now; a later call begins another walk.
-- A call that finds nothing to do notes up to which number renumbered messages are left.
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
    IF NOT more THEN
        PERFORM @schema@.queue_message_note_renumbered();
        RETURN;
    ELSIF NOT @schema@.queue_message_take_turn('renumber') THEN
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

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_42;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_42() p
    UNION ALL VALUES ('queue_message_relay', 'SELECT (renumbered_to) ON %1$I.queue_message_cluster')
$body$;
