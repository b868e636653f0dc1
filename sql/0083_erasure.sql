-- Erasure: content, body, options, ordering key and error text of archived messages go, and the rest of the row stays. Such a row has the options
-- {"erased": true}, which no INSERT takes. The error text stays that names the message which was sent instead.

-- As before, but an erasure may change rows. Only queue_message_erase() sets relay.erasure.
CREATE OR REPLACE FUNCTION @schema@.queue_message_archive_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF TG_OP = 'UPDATE' AND current_setting('relay.erasure', true) = 'on' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'The archive is final: % of message % is refused; replay it to send it again.', TG_OP, OLD.id
        USING ERRCODE = 'restrict_violation', TABLE = TG_TABLE_NAME;
END
$body$;

-- The tables that hold the archive's rows: one for each day, and one for dead messages. It locks none of them, so retention can drop a day meanwhile.
CREATE FUNCTION @schema@.queue_message_archive_parts() RETURNS SETOF regclass
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT i.inhrelid::regclass FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN (format('%I.queue_message_archive', @schema_literal@::text)::regclass,
            format('%I.queue_message_archive_daily', @schema_literal@::text)::regclass)
        AND c.relkind = 'r' ORDER BY c.relname
$body$;

-- Erases archived messages of one table: those with one of the ids, and those with one of the ordering keys. places (xid/seq) narrows ids that several
-- messages have. Returns how many; what is erased already does not count. A dead one counts as acknowledged, because nobody can replay it any more.
CREATE FUNCTION @schema@.queue_message_erase(
    part regclass, ids uuid[], places text[] DEFAULT NULL, ordering_keys text[] DEFAULT NULL, dry_run boolean DEFAULT true, by text DEFAULT session_user
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $body$
#variable_conflict use_variable
DECLARE
    name text := (SELECT c.relname FROM pg_class c WHERE c.oid = part AND c.oid IN (SELECT @schema@.queue_message_archive_parts()));
    meant text;
    erased bigint;
BEGIN
    IF name IS NULL THEN
        RAISE EXCEPTION '% is no table of the archive: take one of queue_message_archive_parts().', coalesce(part::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF coalesce(cardinality(ids), 0) + coalesce(cardinality(ordering_keys), 0) = 0 THEN
        RAISE EXCEPTION 'Say what to erase: ids, ordering keys or both.' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Two looks: the index of ids serves only the first. A look for null reads nothing.
    meant := format('
        SELECT a.ctid FROM %1$I.%2$I a
        WHERE a.id = ANY ($1) AND ($2 IS NULL OR a.xid || ''/'' || a.seq = ANY ($2)) AND a.options <> ''{"erased": true}''
        UNION SELECT a.ctid FROM %1$I.%2$I a WHERE a.ordering_key = ANY ($3)', @schema_literal@::text, name);
    IF dry_run IS DISTINCT FROM false THEN
        EXECUTE 'SELECT count(*) FROM (' || meant || ') a' INTO erased USING ids, places, nullif(ordering_keys, '{}');
        RETURN erased;
    END IF;
    PERFORM set_config('relay.erasure', 'on', true);
    EXECUTE format('WITH erased AS (
            UPDATE %1$I.%2$I a SET content = ''{}'', body = NULL, options = ''{"erased": true}'', ordering_key = NULL,
                error_detail = CASE WHEN a.result = ''discarded'' AND a.error_code IN (''bundled'', ''superseded'') THEN a.error_detail END
            WHERE a.ctid = ANY (ARRAY(', @schema_literal@::text, name) || meant || format(')) RETURNING a.id, a.xid, a.seq, a.result
        ), acknowledged AS (
            INSERT INTO %1$I.queue_message_dead_ack (xid, seq, acknowledged_by, note)
            SELECT e.xid, e.seq, $4, ''erased'' FROM erased e WHERE e.result IN (''rejected'', ''failed'', ''lock_expired'') ON CONFLICT DO NOTHING
        ), noted AS (
            INSERT INTO %1$I.queue_message_audit (acted_by, action, subject, became)
            SELECT $4, ''erase'', e.id, jsonb_build_object(''place'', e.xid || ''/'' || e.seq) FROM erased e
        )
        SELECT count(*) FROM erased', @schema_literal@::text)
        INTO erased USING ids, places, nullif(ordering_keys, '{}'), @schema@.queue_message_signed(by);
    PERFORM set_config('relay.erasure', 'off', true);
    RETURN erased;
END
$body$;

-- For `relay show`.
CREATE INDEX queue_message_audit_erase_idx ON @schema@.queue_message_audit (subject) WHERE action = 'erase';

-- How many messages with these ordering keys are not archived yet.
CREATE FUNCTION @schema@.queue_message_waiting_under(ordering_keys text[]) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $body$
    SELECT (SELECT count(*) FROM @schema@.queue_message m WHERE m.ordering_key = ANY (ordering_keys))
        + (SELECT count(*) FROM @schema@.queue_message_keyed_row k WHERE k.ordering_key = ANY (ordering_keys))
$body$;

-- An erased message has no content to send.
CREATE FUNCTION @schema@.queue_message_refuse_erased(message uuid) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT @schema@.queue_message_refuse_new(message, 'content', 'it was erased, so nobody can send it again.')
$body$;

-- As before, and refuses what was erased. An erasure waits for this transaction, and then finds the replay.
CREATE OR REPLACE FUNCTION @schema@.queue_message_replay_at(
    message uuid, xid xid8, seq bigint, same_id boolean DEFAULT false, by text DEFAULT session_user) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '5s' SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    old record;
    new_id uuid := CASE WHEN same_id THEN message ELSE @schema@.queue_message_uuid() END;
BEGIN
    SELECT a.* INTO old FROM @schema@.queue_message_archive a
    WHERE a.id = message AND (a.xid, a.seq) = (queue_message_replay_at.xid, queue_message_replay_at.seq) FOR SHARE;
    IF EXISTS (SELECT FROM @schema@.queue_message m WHERE m.id = message) AND (same_id OR old.id IS NULL) THEN
        RAISE EXCEPTION 'Message % is still in the queue; it goes out from there.', message USING ERRCODE = 'object_in_use';
    ELSIF old.id IS NULL THEN
        RAISE EXCEPTION 'No archived message has the id %.', message || coalesce(format('@%s/%s', xid, seq), '') USING ERRCODE = 'no_data_found';
    ELSIF old.error_code = 'content_unprintable' THEN
        PERFORM @schema@.queue_message_refuse_unprintable(message);
    ELSIF old.options = '{"erased": true}' THEN
        PERFORM @schema@.queue_message_refuse_erased(message);
    END IF;
    INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, expires_at, replay_of)
    VALUES (new_id, old.exchange, old.routing_key, old.content, old.body, old.options, old.ordering_key,
            CASE WHEN old.expires_at > now() AND isfinite(old.expires_at) THEN old.expires_at END, message);
    PERFORM @schema@.queue_message_none_skipped('queue_message', 1, FOUND::integer);
    INSERT INTO @schema@.queue_message_audit (acted_by, action, subject, became)
    VALUES (@schema@.queue_message_signed(by), 'replay', message, jsonb_build_object('id', new_id, 'place', format('%s/%s', old.xid, old.seq)));
    IF old.result IN ('rejected', 'failed', 'lock_expired') THEN
        INSERT INTO @schema@.queue_message_dead_ack (xid, seq, acknowledged_by, note)
        VALUES (old.xid, old.seq, @schema@.queue_message_signed(by), 'replayed as ' || new_id) ON CONFLICT DO NOTHING;
    END IF;
    RETURN new_id;
END
$body$;

-- As before, and refuses what was erased.
CREATE OR REPLACE FUNCTION @schema@.queue_message_replay_rows(
    job text, xids xid8[], seqs bigint[], ids uuid[], exchanges text[], routing_keys text[], contents text[], bodies bytea[], options text[],
    ordering_keys text[], expires_ats timestamptz[], same_id boolean DEFAULT false
) RETURNS TABLE (xid xid8, seq bigint, replayed_as uuid)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    WITH given AS (
        SELECT DISTINCT ON (entry.xid, entry.seq) entry.*
        FROM unnest(xids, seqs, ids, exchanges, routing_keys, contents, bodies, options, ordering_keys, expires_ats) WITH ORDINALITY
            AS entry (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, expires_at, place)
        ORDER BY entry.xid, entry.seq, entry.place
    ), fresh AS (
        INSERT INTO @schema@.queue_message_replay_ledger AS ledger (job, xid, seq, id)
        SELECT queue_message_replay_rows.job, g.xid, g.seq, CASE WHEN same_id THEN g.id ELSE @schema@.queue_message_uuid() END
        FROM given g ORDER BY g.place
        ON CONFLICT DO NOTHING RETURNING ledger.xid, ledger.seq, ledger.id
    ), made AS (
        -- The numbers are taken after the sort.
        INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, expires_at, replay_of)
        SELECT f.id, g.exchange, g.routing_key, g.content::jsonb, g.body, g.options::jsonb, g.ordering_key,
            CASE WHEN g.expires_at > now() THEN g.expires_at END, g.id
        FROM fresh f JOIN given g ON (g.xid, g.seq) = (f.xid, f.seq)
        -- A lake has no content of what PostgreSQL could not print.
        WHERE (g.content IS NOT NULL OR @schema@.queue_message_refuse_unprintable(g.id))
            AND (g.options::jsonb <> '{"erased": true}' OR @schema@.queue_message_refuse_erased(g.id))
        ORDER BY g.place RETURNING 1
    ), noted AS (
        INSERT INTO @schema@.queue_message_audit (action, subject, became)
        SELECT 'replay_job', queue_message_replay_rows.job, jsonb_build_object('messages', count(*)) FROM fresh HAVING count(*) > 0
    ), answered AS (
        INSERT INTO @schema@.queue_message_dead_ack (xid, seq, acknowledged_by, note)
        SELECT d.xid, d.seq, session_user, 'replayed as ' || f.id
        FROM fresh f JOIN given g ON (g.xid, g.seq) = (f.xid, f.seq)
            JOIN @schema@.queue_message_dead d ON d.id = g.id AND (d.xid, d.seq) = (g.xid, g.seq)
        ON CONFLICT DO NOTHING
    )
    SELECT f.xid, f.seq, f.id FROM fresh f JOIN given g ON (g.xid, g.seq) = (f.xid, f.seq)
    WHERE (SELECT @schema@.queue_message_none_skipped('queue_message',
        (SELECT count(*) FROM fresh), (SELECT count(*) FROM made))) IS NOT NULL
    ORDER BY g.place
$body$;

-- As before, but leaves out what was erased.
CREATE OR REPLACE FUNCTION @schema@.queue_message_find(
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
          -- Long options need not be read for this.
          AND (pg_column_size(a.options) > 100 OR a.options <> '{"erased": true}')
        ORDER BY a.archived_xid, a.xid, a.seq
        OFFSET 0
    ) a
    WHERE (again
          -- With the same id a replay is no replay of itself.
          OR (NOT EXISTS (SELECT FROM @schema@.queue_message_archive r
                          WHERE r.replay_of = a.id AND (r.id <> a.id OR r.archived_at > a.archived_at))
              AND a.id NOT IN (SELECT @schema@.queue_message_waiting_replays())
              -- The look by itself is a tenth of what the function costs.
              OR EXISTS (SELECT FROM @schema@.queue_message_audit n WHERE n.action = 'replay' AND n.subject = a.id::text
                         AND n.became ->> 'place' <> format('%s/%s', a.xid, a.seq))
                  AND @schema@.queue_message_replayed_elsewhere(a.id, a.xid, a.seq))
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

-- As before, but an open erasure or replay holds up the other messages no more.
CREATE OR REPLACE FUNCTION @schema@.queue_message_delete_dead(archived_before timestamptz, exported boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    deleted bigint;
    seen text := @schema@.queue_message_lake_seen();
BEGIN
    -- Not a SET clause of the function: only a superuser may write one for a name that no extension has declared.
    PERFORM set_config('relay.retention', 'on', true);
    WITH old AS (
        SELECT d.ctid AS place FROM @schema@.queue_message_dead d
        WHERE d.archived_at < archived_before
          AND (NOT exported OR EXISTS (SELECT FROM @schema@.queue_message_export e
              WHERE e.partition = 'queue_message_dead' AND e.verified_at IS NOT NULL AND e.lake = seen
                AND NOT e.aside ? format('%s/%s', d.xid, d.seq)
                AND (d.archived_xid < e.exported_xid
                    OR d.archived_xid >= pg_snapshot_xmax(pg_current_snapshot()) AND e.exported_xid < pg_snapshot_xmax(pg_current_snapshot())
                    AND age(d.xmin) > age(e.exported_xid::xid)))
              AND NOT EXISTS (SELECT FROM @schema@.queue_message_export e WHERE e.damage IS NOT NULL))
        ORDER BY d.archived_at LIMIT 5000 FOR UPDATE OF d SKIP LOCKED
    ), gone AS (
        DELETE FROM @schema@.queue_message_dead d USING old WHERE d.ctid = old.place RETURNING d.xid, d.seq
    ), answers AS (
        DELETE FROM @schema@.queue_message_dead_ack a USING gone WHERE (a.xid, a.seq) = (gone.xid, gone.seq)
    )
    SELECT count(*) INTO deleted FROM gone;
    PERFORM set_config('relay.retention', 'off', true);
    RETURN deleted;
END
$body$;

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_83;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_83() p
    UNION ALL VALUES ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_erase, %1$I.queue_message_archive_parts,
        %1$I.queue_message_waiting_under')
$body$;
