-- As before, but each message looks for what audit and ledger say of its own place. Producers choose ids: 2,000 dead messages of one id, each
-- replayed, kept `relay replay` busy for 20 seconds, because each of them read the notes of all.
DROP INDEX @schema@.queue_message_audit_replay_idx;
CREATE INDEX queue_message_audit_replay_idx ON @schema@.queue_message_audit (subject, (became ->> 'place')) WHERE action = 'replay';
CREATE INDEX queue_message_replay_ledger_place_idx ON @schema@.queue_message_replay_ledger (xid, seq);

CREATE OR REPLACE FUNCTION @schema@.queue_message_replayed_elsewhere(message uuid, xid xid8, seq bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    SELECT EXISTS (SELECT FROM @schema@.queue_message_audit n WHERE n.action = 'replay' AND n.subject = message::text)
        AND NOT EXISTS (SELECT FROM @schema@.queue_message_audit n
                        WHERE n.action = 'replay' AND n.subject = message::text AND n.became ->> 'place' IS NULL)
        AND NOT EXISTS (SELECT FROM @schema@.queue_message_audit n
                        WHERE n.action = 'replay' AND n.subject = message::text AND n.became ->> 'place' = format('%s/%s', xid, seq))
        AND NOT EXISTS (SELECT FROM (
                SELECT l.id FROM @schema@.queue_message_replay_ledger l
                WHERE (l.xid, l.seq) = (queue_message_replayed_elsewhere.xid, queue_message_replayed_elsewhere.seq) OFFSET 0) l
            WHERE message IN (SELECT r.replay_of FROM (SELECT r.replay_of FROM @schema@.queue_message_archive r WHERE r.id = l.id OFFSET 0) r))
$body$;

-- As before, and says only the id where nothing was archived with it.
CREATE OR REPLACE FUNCTION @schema@.queue_message_replay(message uuid, same_id boolean DEFAULT false, by text DEFAULT session_user) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    last record;
BEGIN
    SELECT a.xid, a.seq INTO last FROM (SELECT * FROM @schema@.queue_message_archive a WHERE a.id = message OFFSET 0) a
    ORDER BY a.archived_xid DESC, a.archived_at DESC LIMIT 1;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM @schema@.queue_message m WHERE m.id = message) THEN
        RAISE EXCEPTION 'No archived message has the id %.', message USING ERRCODE = 'no_data_found';
    END IF;
    -- Afterwards: one that was archived in between is seen here.
    PERFORM @schema@.queue_message_refuse_shared(message);
    RETURN @schema@.queue_message_replay_at(message, last.xid, last.seq, same_id, by);
END
$body$;
