-- Producers choose ids, so several messages may have the same one. Whoever acts on an archived message acts on exactly one: where an id does not
-- say which, its place does.

-- How many messages were archived with an id. A replay with the same id is the message that it replays. OFFSET 0: by the id, and not from the
-- archive's end until it is found.
CREATE FUNCTION @schema@.queue_message_archived_with(message uuid) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT count(*) FROM (
        SELECT a.replay_of FROM @schema@.queue_message_archive a WHERE a.id = queue_message_archived_with.message OFFSET 0) a
    WHERE a.replay_of IS DISTINCT FROM queue_message_archived_with.message
$body$;

-- Refuses an id that several messages were archived with, and names the newest of them by their places.
CREATE FUNCTION @schema@.queue_message_refuse_shared(message uuid) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    several bigint := @schema@.queue_message_archived_with(message);
BEGIN
    IF several > 1 THEN
        RAISE EXCEPTION '% messages were archived with the id %: name the one that you mean, %; `relay show` tells them apart.', several, message,
            (SELECT string_agg(format('%s@%s/%s', message, one.xid, one.seq), ' or ')
             FROM (SELECT a.xid, a.seq FROM (SELECT * FROM @schema@.queue_message_archive a WHERE a.id = message OFFSET 0) a
                   ORDER BY a.archived_xid DESC, a.archived_at DESC LIMIT 3) one)
            USING ERRCODE = 'too_many_rows';
    END IF;
END
$body$;

-- Enqueues the message that was archived at a place again and returns the new message's id. An open transaction that inserts the same id is waited for
-- for 5 seconds.
-- A deadline that has passed is left out, or the new message would only be rejected as expired. What was found to be unprintable stays so;
-- the INSERT would take seconds to find it again, and PostgreSQL's own words for it are those of a server without memory.
CREATE FUNCTION @schema@.queue_message_replay_at(
    message uuid, xid xid8, seq bigint, same_id boolean DEFAULT false, by text DEFAULT session_user) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $body$
#variable_conflict use_variable
DECLARE
    old record;
    new_id uuid := CASE WHEN same_id THEN message ELSE @schema@.queue_message_uuid() END;
BEGIN
    SELECT * INTO old FROM (SELECT * FROM @schema@.queue_message_archive a WHERE a.id = message OFFSET 0) a
    WHERE (a.xid, a.seq) = (queue_message_replay_at.xid, queue_message_replay_at.seq);
    IF EXISTS (SELECT FROM @schema@.queue_message m WHERE m.id = message) AND (same_id OR old.id IS NULL) THEN
        RAISE EXCEPTION 'Message % is still in the queue; it goes out from there.', message USING ERRCODE = 'object_in_use';
    ELSIF old.id IS NULL THEN
        RAISE EXCEPTION 'No archived message has the id %.', message || coalesce(format('@%s/%s', xid, seq), '') USING ERRCODE = 'no_data_found';
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

-- Enqueues the one message that was archived with an id again, as it was archived last, and returns the new message's id.
CREATE OR REPLACE FUNCTION @schema@.queue_message_replay(message uuid, same_id boolean DEFAULT false, by text DEFAULT session_user) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    last record;
BEGIN
    SELECT a.xid, a.seq INTO last FROM (SELECT * FROM @schema@.queue_message_archive a WHERE a.id = message OFFSET 0) a
    ORDER BY a.archived_xid DESC, a.archived_at DESC LIMIT 1;
    -- Afterwards: one that was archived in between is seen here.
    PERFORM @schema@.queue_message_refuse_shared(message);
    RETURN @schema@.queue_message_replay_at(message, last.xid, last.seq, same_id, by);
END
$body$;

-- As before, but exactly the message that was found. With the same id several archived ones may be one message, and the first of them has sent it
-- on its way; where they are several messages, the queue refuses the second.
CREATE OR REPLACE FUNCTION @schema@.queue_message_replay_found(message uuid, xid xid8, seq bigint, same_id boolean, by text, job text) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    new_id uuid := message;
BEGIN
    IF NOT same_id OR NOT EXISTS (SELECT FROM @schema@.queue_message q WHERE q.id = message AND q.replay_of = message)
        OR @schema@.queue_message_archived_with(message) > 1 THEN
        new_id := @schema@.queue_message_replay_at(message, xid, seq, same_id, by);
    END IF;
    IF job IS NOT NULL THEN
        INSERT INTO @schema@.queue_message_replay_ledger (job, xid, seq, id) VALUES (job, xid, seq, new_id);
    END IF;
    RETURN new_id;
END
$body$;

-- As before, but exactly the message that was answered.
CREATE OR REPLACE FUNCTION @schema@.queue_message_dead_replay(
    message uuid, xid xid8, seq bigint, at_most integer, by text DEFAULT session_user) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    new_id uuid;
BEGIN
    IF coalesce(@schema@.queue_message_replays_before(message, xid, seq, at_most), at_most) >= at_most
       OR NOT @schema@.queue_message_dead_answer(message, xid, seq, by) THEN
        RETURN NULL;
    END IF;
    new_id := @schema@.queue_message_replay_at(message, xid, seq, false, by);
    UPDATE @schema@.queue_message_dead_ack a SET note = 'replayed as ' || new_id WHERE (a.xid, a.seq) = (xid, seq);
    RETURN new_id;
END
$body$;

-- As before, but of one message: an id that several messages were archived with is refused.
CREATE OR REPLACE FUNCTION @schema@.queue_message_dead_acknowledge(message uuid, by text DEFAULT session_user, note text DEFAULT '') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    answered bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM @schema@.queue_message_dead d WHERE d.id = message) THEN
        RAISE EXCEPTION 'No dead message has the id %.', message USING ERRCODE = 'no_data_found';
    END IF;
    PERFORM @schema@.queue_message_refuse_shared(message);
    INSERT INTO @schema@.queue_message_dead_ack (xid, seq, acknowledged_by, note)
    SELECT d.xid, d.seq, @schema@.queue_message_signed(by), queue_message_dead_acknowledge.note FROM @schema@.queue_message_dead d WHERE d.id = message
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS answered = ROW_COUNT;
    RETURN answered;
END
$body$;

-- As before, but all that waits with the id, under a key and in the queue: none of it is sent any more, or nothing is taken back.
CREATE OR REPLACE FUNCTION @schema@.queue_message_cancel(message uuid, by text DEFAULT session_user) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    -- What a fold has just sent under its own id is in the queue by now.
    keyed bigint := (SELECT k.seq FROM @schema@.queue_message_keyed_row k WHERE k.id = message FOR UPDATE);
    queued boolean := EXISTS (SELECT FROM @schema@.queue_message m WHERE m.id = message);
BEGIN
    IF queued AND NOT @schema@.queue_message_take_out(message, 'discarded', 'cancelled', NULL, @schema@.queue_message_signed(by)) THEN
        RETURN false;
    END IF;
    IF keyed IS NOT NULL THEN
        PERFORM @schema@.queue_message_keyed_archive(ARRAY[keyed], 'discarded', 'cancelled', NULL, @schema@.queue_message_signed(by));
    END IF;
    RETURN queued OR keyed IS NOT NULL;
END
$body$;

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_places;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_places() p
    UNION ALL VALUES ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_replay_at')
$body$;
