-- Messages that were written in another cluster, and came here by a restored dump or as a logical copy, carry that cluster's transaction ids.
-- Claims go by these ids: what stands above the next id of this cluster would be overtaken by whatever is inserted from then on. Such
-- messages are renumbered once, in their order and before everything that was inserted here.

-- The cluster whose ids the messages carry, as it was seen last. A dump takes the row along, so that another cluster finds another name.
CREATE TABLE @schema@.queue_message_cluster (
    system_identifier bigint PRIMARY KEY,
    noted_at timestamptz NOT NULL DEFAULT now(),
    -- While messages are renumbered: the first and the last transaction that brought them here, and the last position that was looked at.
    first_brought bigint,
    last_brought bigint,
    walked_xid xid8,
    walked_seq bigint
);
COMMENT ON TABLE @schema@.queue_message_cluster IS 'The cluster whose transaction ids the messages carry; written by queue_message_renumber().';

-- Which cluster this is; 0 where the server does not say.
CREATE FUNCTION @schema@.queue_message_cluster_here() RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    RETURN (SELECT c.system_identifier FROM pg_control_system() c);
EXCEPTION WHEN insufficient_privilege THEN
    RETURN 0;
END
$body$;

-- Each sequence and the highest number that its rows show, by their indexes. A logical copy brings the rows and not the sequences.
CREATE FUNCTION @schema@.queue_message_sequences() RETURNS TABLE (sequence regclass, used bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT pg_get_serial_sequence(format('%I.%I', @schema_literal@::text, given.relation), given.name)::regclass, given.used
    FROM (VALUES
        ('queue_message', 'seq', greatest(
            (SELECT m.seq FROM @schema@.queue_message m WHERE m.xid = '2' ORDER BY m.xid DESC, m.seq DESC LIMIT 1),
            (SELECT max(k.seq) FROM @schema@.queue_message_keyed_row k))),
        ('queue_message_relay', 'id', (SELECT max(r.id) FROM @schema@.queue_message_relay r)),
        ('queue_message_audit', 'id', (SELECT max(a.id) FROM @schema@.queue_message_audit a)),
        ('queue_message_request', 'id', (SELECT max(q.id) FROM @schema@.queue_message_request q)),
        ('queue_message_adoption_seen', 'n', (SELECT max(s.n) FROM @schema@.queue_message_adoption_seen s))
    ) AS given (relation, name, used)
$body$;

-- Moves a sequence past a number that is in use. Some way past: somebody may take numbers between the look and the move.
CREATE FUNCTION @schema@.queue_message_advance(sequence regclass, used bigint) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    SELECT setval(queue_message_advance.sequence, queue_message_advance.used + 1000)
    WHERE queue_message_advance.used > coalesce(pg_sequence_last_value(queue_message_advance.sequence), 0)
$body$;

-- Whether messages or numbers of another cluster may be here. Cheap: by indexes alone. While a subscription still fills the queue nothing
-- is said of it, because the publisher finds its messages by the ids that it knows.
CREATE FUNCTION @schema@.queue_message_has_foreign_ids() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    here bigint := @schema@.queue_message_cluster_here();
BEGIN
    IF EXISTS (SELECT FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid
               WHERE s.subenabled AND r.srrelid = format('%I.queue_message', @schema_literal@::text)::regclass) THEN
        RETURN false;
    ELSIF EXISTS (SELECT FROM @schema@.queue_message m WHERE m.xid >= pg_snapshot_xmax(pg_current_snapshot()))
        OR EXISTS (SELECT FROM @schema@.queue_message_cluster c WHERE c.system_identifier <> here OR c.walked_xid IS NOT NULL)
        OR EXISTS (SELECT FROM @schema@.queue_message_sequences() s WHERE s.used > coalesce(pg_sequence_last_value(s.sequence), 0)) THEN
        RETURN true;
    END IF;
    -- An empty queue is not noted: what is copied into it later is looked at once.
    RETURN NOT EXISTS (SELECT FROM @schema@.queue_message_cluster) AND EXISTS (SELECT FROM @schema@.queue_message);
END
$body$;

-- By whom a row version was written, as a full transaction id. A message of this cluster has no higher xid than that: it is written by its
-- transaction, by a subtransaction or by a later one. So this also tells messages whose ids this cluster has passed since they came.
CREATE FUNCTION @schema@.queue_message_written_by(own bigint, written xid) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $body$
    SELECT own OPERATOR(pg_catalog.-) pg_catalog.age(written)
$body$;

-- One look at the whole queue: which transactions brought messages from another cluster, null for none; and numbers that are in use.
-- Sweeps rewrite rows and leave locked_by, so those do not tell when the last message came.
CREATE FUNCTION @schema@.queue_message_find_foreign(
    OUT messages bigint, OUT first_brought bigint, OUT last_brought bigint, OUT seq bigint, OUT holder integer)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = on SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    own bigint := pg_current_xact_id()::text::bigint;
BEGIN
    SELECT count(*), min(m.brought) FILTER (WHERE m.xid > m.brought), max(m.brought) FILTER (WHERE m.xid > m.brought AND m.locked_by IS NULL),
        max(m.seq), max(m.locked_by)
    INTO messages, first_brought, last_brought, seq, holder
    FROM (SELECT q.xid::text::bigint AS xid, @schema@.queue_message_written_by(own, q.xmin) AS brought, q.seq, q.locked_by
          FROM @schema@.queue_message q) AS m;
    last_brought := coalesce(last_brought, first_brought);
END
$body$;

-- Relays of another cluster are silent here, whatever their last heartbeat says, and hold no lanes; their positions mean nothing.
CREATE FUNCTION @schema@.queue_message_silence_foreign_relays(here bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    silent integer[];
    other boolean := EXISTS (SELECT FROM @schema@.queue_message_cluster c WHERE c.system_identifier <> here);
BEGIN
    WITH marked AS (
        UPDATE @schema@.queue_message_relay r
        SET heartbeat_at = least(r.heartbeat_at, now() - interval '1 minute'),
            low_xid = '0', low_seq = 0, head_xid = '0', head_seq = 0, top_xid = '0', top_seq = 0
        WHERE other OR greatest(r.low_xid, r.head_xid, r.top_xid) >= pg_snapshot_xmax(pg_current_snapshot())
        RETURNING r.id
    )
    SELECT array_agg(m.id) INTO silent FROM marked m;
    UPDATE @schema@.queue_message_lane l SET owner = NULL, lease_expires_at = NULL, epoch = l.epoch + 1
    WHERE l.owner IS NOT NULL AND (other OR l.owner = ANY (silent));
END
$body$;

-- Begins: moves the sequences, silences foreign relays, and says whether messages are to be renumbered; else notes this cluster.
CREATE FUNCTION @schema@.queue_message_renumber_begin(here bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    found record;
BEGIN
    found := @schema@.queue_message_find_foreign();
    PERFORM @schema@.queue_message_advance(s.sequence, s.used) FROM @schema@.queue_message_sequences() s;
    PERFORM @schema@.queue_message_advance(pg_get_serial_sequence(format('%I.%I', @schema_literal@::text, n.relation), n.name)::regclass, n.used)
    FROM (VALUES ('queue_message', 'seq', found.seq), ('queue_message_relay', 'id', found.holder::bigint)) AS n (relation, name, used);
    PERFORM @schema@.queue_message_silence_foreign_relays(here);
    DELETE FROM @schema@.queue_message_cluster;
    IF found.messages > 0 THEN
        INSERT INTO @schema@.queue_message_cluster (system_identifier, first_brought, last_brought, walked_xid, walked_seq)
        VALUES (here, found.first_brought, found.last_brought, CASE WHEN found.first_brought IS NOT NULL THEN '2'::xid8 END,
            CASE WHEN found.first_brought IS NOT NULL THEN 9223372036854775807 END);
    END IF;
    RETURN found.first_brought IS NOT NULL;
END
$body$;

-- One step: up to most messages above the last position that was looked at, in their order. One UPDATE by a nested loop, which was four times
-- as fast as one for each message and keeps the order; that it did is checked. They get the id 2, which no transaction has (the
-- first one is 3), and new numbers; so they stand before what was inserted here, and behind what was renumbered before. Locks stay and expire:
-- a message that stood still because of its lock would be overtaken by its ordering key's next. What the same transactions brought with
-- lower ids goes along, because it stood before them. Rows are waited for and not stepped over, for the same reason.
CREATE FUNCTION @schema@.queue_message_renumber_step(most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    own bigint := pg_current_xact_id()::text::bigint;
    walk record;
    renumbered bigint;
    astray boolean;
    last_xid xid8;
    last_seq bigint;
    goes_on boolean;
BEGIN
    SELECT c.first_brought, c.last_brought, c.walked_xid, c.walked_seq INTO walk FROM @schema@.queue_message_cluster c;
    -- Not a SET clause of the function: only a superuser may write one for a name that no extension has declared.
    PERFORM set_config('relay.renumber', 'on', true);
    WITH foreign_ids AS MATERIALIZED (
        SELECT m.xid, m.seq FROM @schema@.queue_message m
        WHERE (m.xid, m.seq) > (walk.walked_xid, walk.walked_seq)
          AND (m.xid::text::bigint > @schema@.queue_message_written_by(own, m.xmin)
               OR m.xid::text::bigint < walk.first_brought
                  AND @schema@.queue_message_written_by(own, m.xmin) BETWEEN walk.first_brought AND walk.last_brought)
        ORDER BY m.xid, m.seq LIMIT most FOR UPDATE
    ), moved AS (
        UPDATE @schema@.queue_message m SET xid = '2', seq = DEFAULT FROM foreign_ids f WHERE m.xid = ANY (ARRAY[f.xid]) AND m.seq = f.seq
        RETURNING f.xid, f.seq, m.seq AS new_seq
    ), placed AS (
        SELECT n.xid, n.seq, n.new_seq < lag(n.new_seq) OVER (ORDER BY n.xid, n.seq) AS astray FROM moved n
    )
    SELECT count(*), coalesce(bool_or(p.astray), false), max(p.xid), (array_agg(p.seq ORDER BY p.xid DESC, p.seq DESC))[1]
    INTO renumbered, astray, last_xid, last_seq FROM placed p;
    IF astray THEN
        RAISE EXCEPTION 'Messages of another cluster were not renumbered in their order; nothing was changed.' USING ERRCODE = 'internal_error';
    END IF;
    PERFORM set_config('relay.renumber', 'off', true);
    goes_on := renumbered = most;
    UPDATE @schema@.queue_message_cluster c
    SET first_brought = CASE WHEN goes_on THEN c.first_brought END, last_brought = CASE WHEN goes_on THEN c.last_brought END,
        walked_xid = CASE WHEN goes_on THEN last_xid END, walked_seq = CASE WHEN goes_on THEN last_seq END;
    RETURN renumbered;
END
$body$;

-- Renumbers up to most messages of another cluster, if there are any; call again while there are more. One caller at a time works on it.
CREATE FUNCTION @schema@.queue_message_renumber(most integer DEFAULT 1000, OUT renumbered bigint, OUT more boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $body$
#variable_conflict use_variable
BEGIN
    renumbered := 0;
    more := @schema@.queue_message_has_foreign_ids();
    IF NOT more OR NOT pg_try_advisory_xact_lock(hashtextextended('queue_message renumber of ' || @schema_literal@::text, 0)) THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM @schema@.queue_message_cluster c
                   WHERE c.system_identifier = @schema@.queue_message_cluster_here() AND c.walked_xid IS NOT NULL) THEN
        more := @schema@.queue_message_renumber_begin(@schema@.queue_message_cluster_here());
    END IF;
    IF more THEN
        renumbered := @schema@.queue_message_renumber_step(most);
        -- Something may have come while this went on, below what was looked at.
        more := renumbered = most OR @schema@.queue_message_has_foreign_ids();
    END IF;
END
$body$;

-- As before, but for what queue_message_renumber() does.
CREATE OR REPLACE FUNCTION @schema@.queue_message_refuse_move() RETURNS trigger LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
BEGIN
    IF TG_NAME = 'queue_message_unchanged' AND NEW.xid = '2'::pg_catalog.xid8 AND pg_catalog.current_setting('relay.renumber', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'Message %: %', NEW.id, TG_ARGV[0] USING ERRCODE = 'check_violation', TABLE = 'queue_message', CONSTRAINT = TG_NAME;
END
$body$;

-- The privileges of before, and those of the functions above.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_0023;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text) LANGUAGE sql IMMUTABLE AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_0023() p
    UNION ALL
    VALUES
        ('queue_message_relay', 'EXECUTE ON FUNCTION %1$I.queue_message_renumber, %1$I.queue_message_has_foreign_ids'),
        ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_renumber, %1$I.queue_message_has_foreign_ids')
$body$;
