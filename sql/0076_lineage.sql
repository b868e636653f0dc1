-- As before, but where several messages were archived with the id, a replay comes first: only the database writes replay_of. With the id of a dead
-- message a producer could send another one, which no replay led to, and a rule counted from there.
CREATE OR REPLACE FUNCTION @schema@.queue_message_replays_before(message uuid, xid xid8, seq bigint, most integer) RETURNS integer
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    found_before integer := 0;
BEGIN
    SELECT a.replay_of, a.archived_xid INTO one FROM @schema@.queue_message_archive a WHERE a.id = message AND (a.xid, a.seq) = (xid, seq);
    WHILE one.replay_of IS NOT NULL AND found_before < most LOOP
        found_before := found_before + 1;
        -- By the id, and what was archived before: with the same id a replay is of itself. OFFSET 0 as in queue_message_replay.
        SELECT a.replay_of, a.archived_xid INTO one FROM (
            SELECT a.replay_of, a.archived_xid FROM @schema@.queue_message_archive a
            WHERE a.id = one.replay_of AND a.archived_xid < one.archived_xid OFFSET 0) a
        ORDER BY a.replay_of IS NULL, a.archived_xid DESC LIMIT 1;
        IF NOT FOUND THEN
            RETURN CASE WHEN found_before >= most THEN found_before END;
        END IF;
    END LOOP;
    RETURN found_before;
END
$body$;
