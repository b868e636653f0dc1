-- An erased request is forgotten: the entry that says which row it would answer has the row's key and a digest of the request. It stayed for ever,
-- because the trigger that deletes it with a dead message reads the options, and an erasure empties them.

-- As before, but the entries of requests go too. An erased request cannot be replayed, so nothing needs its entry; each replay has one of its own.
CREATE OR REPLACE FUNCTION @schema@.queue_message_erase(
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
        ), forgotten AS (
            DELETE FROM %1$I.queue_message_request_row w USING erased e WHERE (w.xid, w.seq) = (e.xid, e.seq)
        )
        SELECT count(*) FROM erased', @schema_literal@::text)
        INTO erased USING ids, places, nullif(ordering_keys, '{}'), @schema@.queue_message_signed(by);
    PERFORM set_config('relay.erasure', 'off', true);
    RETURN erased;
END
$body$;

-- Entries that are left of erased requests; the audit names these also if retention has dropped them since.
DELETE FROM @schema@.queue_message_request_row w
WHERE EXISTS (SELECT FROM @schema@.queue_message_audit n
    WHERE n.action = 'erase' AND n.subject = w.message::text AND n.became ->> 'place' = w.xid || '/' || w.seq);
