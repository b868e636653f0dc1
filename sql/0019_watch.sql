-- What a watch over dead messages does: answer exactly the one that was handled, and replay one at most so many times.

-- How many replays led to an archived message: of what it replays, and what that replays, and so on; counted no further than most. Null
-- where retention has dropped one of them, for then nobody knows.
CREATE FUNCTION @schema@.queue_message_replays_before(message uuid, xid xid8, seq bigint, most integer) RETURNS integer
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
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
        ORDER BY a.archived_xid DESC LIMIT 1;
        IF NOT FOUND THEN
            RETURN CASE WHEN found_before >= most THEN found_before END;
        END IF;
    END LOOP;
    RETURN found_before;
END
$body$;

-- Answers one dead message by its place, as the id may have died before and again since; true if nobody had.
CREATE FUNCTION @schema@.queue_message_dead_answer(
    message uuid, xid xid8, seq bigint, by text DEFAULT session_user, note text DEFAULT '') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    INSERT INTO @schema@.queue_message_dead_ack (xid, seq, acknowledged_by, note)
    SELECT d.xid, d.seq, @schema@.queue_message_signed(by), note FROM @schema@.queue_message_dead d
    WHERE d.id = message AND (d.xid, d.seq) = (xid, seq)
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$body$;

-- Replays a dead message unless somebody has answered it or it comes from at_most replays already; returns the new id, or null. The answer
-- is written first, so of two who try at once one waits and then finds it answered.
CREATE FUNCTION @schema@.queue_message_dead_replay(message uuid, xid xid8, seq bigint, at_most integer, by text DEFAULT session_user) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    new_id uuid;
BEGIN
    IF coalesce(@schema@.queue_message_replays_before(message, xid, seq, at_most), at_most) >= at_most
       OR NOT @schema@.queue_message_dead_answer(message, xid, seq, by) THEN
        RETURN NULL;
    END IF;
    new_id := @schema@.queue_message_replay(message, false, by);
    UPDATE @schema@.queue_message_dead_ack a SET note = 'replayed as ' || new_id WHERE (a.xid, a.seq) = (xid, seq);
    RETURN new_id;
END
$body$;
