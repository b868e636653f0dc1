-- The queue is searched for messages of another cluster in pages. One statement for the whole queue took a minute for ten million messages.

-- A walk has two passes: the first looks which transactions brought messages, the second renumbers these.
ALTER TABLE @schema@.queue_message_cluster ADD COLUMN looking boolean NOT NULL DEFAULT false;

DROP FUNCTION @schema@.queue_message_renumber(integer);
DROP FUNCTION @schema@.queue_message_renumber_begin(bigint);
DROP FUNCTION @schema@.queue_message_renumber_step(integer);
DROP FUNCTION @schema@.queue_message_find_foreign();

-- The next messages in claim order: by whom each row was written, and what tells rows that were rewritten. Sweeps leave locked_by, retries
-- leave available_at.
CREATE FUNCTION @schema@.queue_message_renumber_page(own bigint, after_xid xid8, after_seq bigint, most integer)
RETURNS TABLE (xid xid8, seq bigint, number bigint, brought bigint, locked_by integer, freed boolean, claimed boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    SELECT m.xid, m.seq, m.xid::text::bigint, @schema@.queue_message_written_by(own, m.xmin), m.locked_by,
        m.locked_by IS NOT NULL AND m.lock_expires_at IS NULL, m.locked_by IS NOT NULL OR m.available_at IS NOT NULL
    FROM @schema@.queue_message m
    WHERE (m.xid, m.seq) > (after_xid, after_seq)
    ORDER BY m.xid, m.seq LIMIT most
$body$;

-- Begins on the left: moves the sequences and silences foreign relays.
CREATE FUNCTION @schema@.queue_message_renumber_begin(here bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    PERFORM @schema@.queue_message_advance(s.sequence, s.used) FROM @schema@.queue_message_sequences() s;
    PERFORM @schema@.queue_message_silence_foreign_relays(here);
    DELETE FROM @schema@.queue_message_cluster;
    INSERT INTO @schema@.queue_message_cluster (system_identifier, looking, walked_xid, walked_seq)
    VALUES (here, true, '0', -9223372036854775808);
END
$body$;

-- A page of the first pass: which transactions brought messages, and numbers that are in use. A sweep rewrites a row, so a row that it may
-- have written does not tell when the last message came.
CREATE FUNCTION @schema@.queue_message_renumber_look(most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_column
DECLARE
    own bigint := pg_current_xact_id()::text::bigint;
    found record;
BEGIN
    SELECT count(*) AS looked, min(p.brought) FILTER (WHERE p.number > p.brought) AS first_brought,
        max(p.brought) FILTER (WHERE p.number > p.brought AND p.locked_by IS NULL) AS last_brought,
        max(p.seq) AS seq, max(p.locked_by)::bigint AS holder, max(p.xid) AS last_xid,
        (array_agg(p.seq ORDER BY p.xid DESC, p.seq DESC))[1] AS last_seq
    INTO found
    FROM @schema@.queue_message_cluster c, @schema@.queue_message_renumber_page(own, c.walked_xid, c.walked_seq, most) p;
    PERFORM @schema@.queue_message_advance(pg_get_serial_sequence(format('%I.%I', @schema_literal@::text, n.relation), n.name)::regclass, n.used)
    FROM (VALUES ('queue_message', 'seq', found.seq), ('queue_message_relay', 'id', found.holder)) AS n (relation, name, used);
    UPDATE @schema@.queue_message_cluster c
    SET first_brought = least(c.first_brought, found.first_brought), last_brought = greatest(c.last_brought, found.last_brought),
        walked_xid = coalesce(found.last_xid, c.walked_xid), walked_seq = coalesce(found.last_seq, c.walked_seq);
    IF found.looked < most THEN
        UPDATE @schema@.queue_message_cluster c
        SET looking = false, last_brought = coalesce(c.last_brought, c.first_brought),
            walked_xid = CASE WHEN c.first_brought IS NOT NULL THEN '2'::xid8 END,
            walked_seq = CASE WHEN c.first_brought IS NOT NULL THEN 9223372036854775807 END;
        -- An empty queue is not noted: what is copied into it later is looked at once.
        DELETE FROM @schema@.queue_message_cluster WHERE NOT EXISTS (SELECT FROM @schema@.queue_message);
    END IF;
    RETURN found.looked;
END
$body$;

-- A page of the second pass. One UPDATE by a nested loop, which was four times as fast as one for each message and keeps the order; that it
-- did is checked. Messages get the id 2, which no transaction has (the first one is 3), and new numbers; so they stand before what was
-- inserted here, and behind what was renumbered before. Locks stay and expire: a message that stood still because of its lock would be
-- overtaken by its ordering key's next. What the same transactions brought with lower ids goes along, because it stood before them. What
-- came after the first pass waits for a walk of its own: a part of it stands behind the place of this one, and must not be overtaken by the
-- rest. Rows are waited for and not stepped over, for the same reason. A row that a sweep rewrote no longer tells who brought it: one that
-- is free and stands below goes along even if it is an own one, which changes no order. The same holds for one that a relay has claimed since.
CREATE FUNCTION @schema@.queue_message_renumber_step(most integer, OUT renumbered bigint, OUT looked bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    own bigint := pg_current_xact_id()::text::bigint;
    walk @schema@.queue_message_cluster;
    astray boolean;
    last_xid xid8;
    last_seq bigint;
BEGIN
    SELECT c.* INTO walk FROM @schema@.queue_message_cluster c;
    -- Not a SET clause of the function: only a superuser may write one for a name that no extension has declared.
    PERFORM set_config('relay.renumber', 'on', true);
    WITH page AS MATERIALIZED (
        SELECT p.* FROM @schema@.queue_message_renumber_page(own, walk.walked_xid, walk.walked_seq, most) p
    ), foreign_ids AS MATERIALIZED (
        SELECT p.xid, p.seq FROM page p
        WHERE (p.number > p.brought OR p.number < walk.first_brought)
          AND (p.brought BETWEEN walk.first_brought AND walk.last_brought
               OR p.locked_by IS NOT NULL AND (p.number > p.brought OR p.freed)
               OR p.claimed AND p.number < walk.first_brought AND p.brought > walk.last_brought)
        ORDER BY p.xid, p.seq
    ), moved AS (
        UPDATE @schema@.queue_message m SET xid = '2', seq = DEFAULT FROM foreign_ids f WHERE m.xid = ANY (ARRAY[f.xid]) AND m.seq = f.seq
        RETURNING f.xid, f.seq, m.seq AS new_seq
    ), placed AS (
        SELECT n.new_seq < lag(n.new_seq) OVER (ORDER BY n.xid, n.seq) AS astray FROM moved n
    )
    SELECT (SELECT count(*) FROM placed), (SELECT coalesce(bool_or(p.astray), false) FROM placed p),
        count(*), max(p.xid), (array_agg(p.seq ORDER BY p.xid DESC, p.seq DESC))[1]
    INTO renumbered, astray, looked, last_xid, last_seq FROM page p;
    IF astray THEN
        RAISE EXCEPTION 'Messages of another cluster were not renumbered in their order; nothing was changed.' USING ERRCODE = 'internal_error';
    END IF;
    PERFORM set_config('relay.renumber', 'off', true);
    UPDATE @schema@.queue_message_cluster c
    SET first_brought = CASE WHEN looked = most THEN c.first_brought END, last_brought = CASE WHEN looked = most THEN c.last_brought END,
        walked_xid = CASE WHEN looked = most THEN last_xid END, walked_seq = CASE WHEN looked = most THEN last_seq END;
END
$body$;

-- Looks at up to most messages and renumbers those of another cluster; call again while there are more. One caller at a time works on it:
-- looked is null where it is another's turn. A look that another cluster began, as in a dump of then, begins again.
CREATE FUNCTION @schema@.queue_message_renumber(most integer DEFAULT 1000, OUT renumbered bigint, OUT more boolean, OUT looked bigint)
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
    END IF;
    -- Something may have come while this went on, below what was looked at.
    more := @schema@.queue_message_has_foreign_ids();
END
$body$;
