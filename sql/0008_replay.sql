-- Replay: an archived message becomes a new one, with lineage. Works for successes too.

CREATE FUNCTION @schema@.queue_message_refuse_unprintable(message uuid) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT @schema@.queue_message_refuse_new(message, 'content', 'its content is larger than a gigabyte as text; '
        'write its numbers as strings and insert it anew.')
$body$;

-- Enqueues one archived message again (the newest of that id) and returns the new message's id.
-- A deadline that has passed is left out, or the new message would only be rejected as expired. What was found to be unprintable stays so;
-- the INSERT would take seconds to find it again, and PostgreSQL's own words for it are those of a server without memory.
CREATE FUNCTION @schema@.queue_message_replay(message uuid, same_id boolean DEFAULT false, by text DEFAULT session_user) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    old record;
    new_id uuid := CASE WHEN same_id THEN message ELSE @schema@.queue_message_uuid() END;
BEGIN
    -- OFFSET 0: by the id, and not from the archive's end until it is found.
    SELECT * INTO old FROM (SELECT * FROM @schema@.queue_message_archive a WHERE a.id = message OFFSET 0) a
    ORDER BY a.archived_xid DESC, a.archived_at DESC LIMIT 1;
    IF EXISTS (SELECT FROM @schema@.queue_message m WHERE m.id = message) AND (same_id OR old.id IS NULL) THEN
        RAISE EXCEPTION 'Message % is still in the queue; it goes out from there.', message USING ERRCODE = 'object_in_use';
    ELSIF old.id IS NULL THEN
        RAISE EXCEPTION 'No archived message has the id %.', message USING ERRCODE = 'no_data_found';
    ELSIF old.error_code = 'content_unprintable' THEN
        PERFORM @schema@.queue_message_refuse_unprintable(message);
    END IF;
    INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, expires_at, replay_of)
    VALUES (new_id, old.exchange, old.routing_key, old.content, old.body, old.options, old.ordering_key,
            CASE WHEN old.expires_at > now() AND isfinite(old.expires_at) THEN old.expires_at END, message);
    INSERT INTO @schema@.queue_message_audit (acted_by, action, subject, became)
    VALUES (@schema@.queue_message_signed(by), 'replay', message, jsonb_build_object('id', new_id));
    IF old.result IN ('rejected', 'failed', 'lock_expired') THEN
        INSERT INTO @schema@.queue_message_dead_ack (xid, seq, acknowledged_by, note)
        VALUES (old.xid, old.seq, @schema@.queue_message_signed(by), 'replayed as ' || new_id) ON CONFLICT DO NOTHING;
    END IF;
    RETURN new_id;
END
$body$;

-- What is in the queue again. By one walk over the queue: an index would cost each INSERT three microseconds. So few rows are promised that
-- PostgreSQL keeps them in a hash table, whatever it believes of the queue.
CREATE FUNCTION @schema@.queue_message_waiting_replays() RETURNS SETOF uuid
LANGUAGE plpgsql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp SET enable_seqscan = on AS $body$
#variable_conflict use_variable
BEGIN
    RETURN QUERY SELECT q.replay_of FROM @schema@.queue_message q WHERE q.replay_of IS NOT NULL;
END
$body$;

-- Whether a replay that went out repeats what a filter by result and code has selected: what it replays, or what that replays, and so on.
-- Where retention has dropped one of them nobody knows, and it counts as such. Planned once: for an archive of many days that takes far
-- longer than the look. Compiled never: a sort that queue_message_find forbids counts as so dear that PostgreSQL would, for each row.
CREATE FUNCTION @schema@.queue_message_repeats(origin uuid, archived_before timestamptz, result text, error_code text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_sort = on SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    older record;
BEGIN
    IF queue_message_repeats.result IS NULL AND queue_message_repeats.error_code IS NULL THEN
        RETURN true;
    END IF;
    LOOP
        SELECT * INTO older FROM (
            SELECT a.replay_of, a.archived_at, a.result, a.error_code FROM @schema@.queue_message_archive a
            WHERE a.id = origin AND a.archived_at < archived_before OFFSET 0) a
        ORDER BY a.archived_at DESC LIMIT 1;
        IF NOT FOUND OR older.result = coalesce(queue_message_repeats.result, older.result)
            AND older.error_code IS NOT DISTINCT FROM coalesce(queue_message_repeats.error_code, older.error_code) THEN
            RETURN true;
        ELSIF older.replay_of IS NULL THEN
            RETURN false;
        END IF;
        origin := older.replay_of;
        archived_before := older.archived_at;
    END LOOP;
END
$body$;

-- Archived messages that a filter selects, in archive order, without contents. Null means any; in routing_key a star is any run of
-- characters; but what was cancelled, or sent within or as another message, is meant only by who names a result or a code. A page begins
-- after a position. Unless again is true, messages that were replayed already are left out, and so are replays that went out and repeat
-- what the filter selects; one that did not is like any other. With a job, what is in its ledger (0015) is left out in any case, and so is
-- what the job itself made. The archive is walked in its order from the position on, and only as far as the page goes, whatever PostgreSQL
-- believes of its size.
CREATE FUNCTION @schema@.queue_message_find(
    archived_from timestamptz DEFAULT NULL, archived_to timestamptz DEFAULT NULL, exchange text DEFAULT NULL, routing_key text DEFAULT NULL,
    result text DEFAULT NULL, error_code text DEFAULT NULL, again boolean DEFAULT false,
    after_archived_xid xid8 DEFAULT '0', after_xid xid8 DEFAULT '0', after_seq bigint DEFAULT 0, most integer DEFAULT 1000,
    job text DEFAULT NULL
) RETURNS TABLE (id uuid, archived_xid xid8, xid xid8, seq bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
#variable_conflict use_variable
BEGIN
    RETURN QUERY SELECT a.id, a.archived_xid, a.xid, a.seq
    FROM (
        SELECT a.id, a.archived_xid, a.xid, a.seq, a.archived_at, a.replay_of, a.result
        FROM @schema@.queue_message_archive a
        WHERE a.archived_xid >= after_archived_xid
          AND (a.archived_xid, a.xid, a.seq) > (after_archived_xid, after_xid, after_seq)
          AND a.archived_at >= coalesce(archived_from, '-infinity') AND a.archived_at < coalesce(archived_to, 'infinity')
          AND (queue_message_find.exchange IS NULL OR a.exchange = queue_message_find.exchange)
          AND (queue_message_find.routing_key IS NULL OR a.routing_key LIKE
               replace(replace(replace(replace(queue_message_find.routing_key, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_'), '*', '%'))
          AND (queue_message_find.result IS NULL OR a.result = queue_message_find.result)
          AND (queue_message_find.error_code IS NULL OR a.error_code = queue_message_find.error_code)
          AND (queue_message_find.result IS NOT NULL OR queue_message_find.error_code IS NOT NULL
               OR coalesce(a.error_code, '') <> ALL ('{cancelled,superseded,bundled}'))
        ORDER BY a.archived_xid, a.xid, a.seq
        OFFSET 0
    ) a
    WHERE (again
          -- With the same id a replay is no replay of itself.
          OR NOT EXISTS (SELECT FROM @schema@.queue_message_archive r
                         WHERE r.replay_of = a.id AND (r.id <> a.id OR r.archived_at > a.archived_at))
          AND a.id NOT IN (SELECT @schema@.queue_message_waiting_replays())
          AND (a.replay_of IS NULL OR a.result <> 'success'
               OR NOT @schema@.queue_message_repeats(a.replay_of, a.archived_at, queue_message_find.result, queue_message_find.error_code)))
      AND (queue_message_find.job IS NULL
           OR NOT EXISTS (SELECT FROM @schema@.queue_message_replay_ledger l WHERE (l.job, l.xid, l.seq) = (queue_message_find.job, a.xid, a.seq))
          AND NOT EXISTS (SELECT FROM @schema@.queue_message_replay_ledger l
                          WHERE l.id = a.id AND l.job = queue_message_find.job AND a.replay_of IS NOT NULL))
    ORDER BY a.archived_xid, a.xid, a.seq
    LIMIT most;
END
$body$;

-- Why a message was refused, in one line, or null where the error is none of its own, so that others would meet it too: PostgreSQL's words
-- without the message's id, which stands beside them. Of a data exception its name alone: the words quote a value, perhaps out of a payload,
-- in the quotation marks of the server's language.
CREATE FUNCTION @schema@.queue_message_refusal(state text, words text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT @schema@.queue_message_one_line(CASE
        WHEN state IN ('23505', '55006') THEN 'a message with this id is in the queue already'
        WHEN state LIKE '22%' THEN format('a value is refused: %s, SQLSTATE %s', CASE state
            WHEN '22001' THEN 'string data right truncation' WHEN '22003' THEN 'numeric value out of range'
            WHEN '22007' THEN 'invalid datetime format' WHEN '22008' THEN 'datetime field overflow' WHEN '22012' THEN 'division by zero'
            WHEN '22021' THEN 'character not in repertoire' WHEN '22023' THEN 'invalid parameter value'
            WHEN '22P02' THEN 'invalid text representation' WHEN '22P05' THEN 'untranslatable character'
            ELSE 'data exception' END, state)
        WHEN state LIKE '54%' THEN 'it is beyond a limit of PostgreSQL, as content of more than a gigabyte as text is (' || words || ')'
        ELSE regexp_replace(words, '^Message [0-9a-f-]{36}: ', '') END, 1000)
    -- The last is an id that is archived no more.
    WHERE state ~ '^(22|23|54)' OR state IN ('55006', 'P0002')
$body$;

-- Replays one message of a page and returns its new id; with a job, notes it in the ledger.
CREATE FUNCTION @schema@.queue_message_replay_found(message uuid, xid xid8, seq bigint, same_id boolean, by text, job text) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    new_id uuid := message;
BEGIN
    -- With the same id several may be one message: the first of them has sent it on its way.
    IF NOT same_id OR NOT EXISTS (SELECT FROM @schema@.queue_message q WHERE q.id = message AND q.replay_of = message) THEN
        new_id := @schema@.queue_message_replay(message, same_id, by);
    END IF;
    IF job IS NOT NULL THEN
        INSERT INTO @schema@.queue_message_replay_ledger (job, xid, seq, id) VALUES (job, xid, seq, new_id);
    END IF;
    RETURN new_id;
END
$body$;

-- Replays what a filter selects (see queue_message_find), or with dry_run, the default, only says what it would replay.
-- The last row returned is the position after which the next page begins. With a job, a ledger is written in the same transaction; the same
-- job elsewhere waits for this transaction's end before it looks.
-- A message that the queue refuses today says so in refused and is in no ledger; the others go. All are tried in one block, which costs
-- nothing where none is refused. It undoes those before the one that is, so they are done again up to it, and the next block begins behind
-- it: each message is refused once, however long that takes, and no other is done more than twice for one that is refused.
CREATE FUNCTION @schema@.queue_message_replay_many(
    archived_from timestamptz DEFAULT NULL, archived_to timestamptz DEFAULT NULL, exchange text DEFAULT NULL, routing_key text DEFAULT NULL,
    result text DEFAULT NULL, error_code text DEFAULT NULL, again boolean DEFAULT false,
    after_archived_xid xid8 DEFAULT '0', after_xid xid8 DEFAULT '0', after_seq bigint DEFAULT 0, most integer DEFAULT 1000,
    dry_run boolean DEFAULT true, same_id boolean DEFAULT false, by text DEFAULT session_user, job text DEFAULT NULL
) RETURNS TABLE (id uuid, replayed_as uuid, archived_xid xid8, xid xid8, seq bigint, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    ids uuid[];
    archived_xids xid8[];
    xids xid8[];
    seqs bigint[];
    total integer;
    made uuid[];
    refusals text[];
    first integer := 1;
    last integer;
    place integer;
BEGIN
    IF NOT dry_run AND queue_message_replay_many.job IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(724017725, hashtext(@schema_literal@ || ' ' || queue_message_replay_many.job));
    END IF;
    SELECT array_agg(f.id), array_agg(f.archived_xid), array_agg(f.xid), array_agg(f.seq), count(*)
        INTO ids, archived_xids, xids, seqs, total
    FROM @schema@.queue_message_find(archived_from, archived_to, queue_message_replay_many.exchange, queue_message_replay_many.routing_key,
        queue_message_replay_many.result, queue_message_replay_many.error_code, again, after_archived_xid, after_xid, after_seq, most,
        queue_message_replay_many.job) f;
    made := array_fill(NULL::uuid, ARRAY[total]);
    refusals := array_fill(NULL::text, ARRAY[total]);
    last := total;
    WHILE first <= total AND NOT dry_run LOOP
        BEGIN
            place := first;
            WHILE place <= last LOOP
                IF refusals[place] IS NULL THEN
                    made[place] := @schema@.queue_message_replay_found(
                        ids[place], xids[place], seqs[place], same_id, by, queue_message_replay_many.job);
                END IF;
                place := place + 1;
            END LOOP;
            first := place;
            last := total;
        EXCEPTION WHEN OTHERS THEN
            made[place] := NULL;
            refusals[place] := @schema@.queue_message_refusal(SQLSTATE, SQLERRM);
            IF refusals[place] IS NULL THEN
                RAISE;
            END IF;
            last := place - 1;
        END;
    END LOOP;
    RETURN QUERY SELECT page.* FROM unnest(ids, made, archived_xids, xids, seqs, refusals) AS page;
END
$body$;
