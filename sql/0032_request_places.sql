-- An answer finds its row by the place of the message in the queue, which no login chooses. Found by the id alone, a message that a
-- producer inserted under the id of a dead request answered that request's row.

-- What a message says to a handler, as a digest: a replay answers a row only with the words of its request. A trace is
-- that of the session which inserted.
CREATE FUNCTION @schema@.queue_message_request_said(exchange text, routing_key text, content jsonb, body bytea, options jsonb) RETURNS bytea
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT sha256(convert_to(jsonb_build_array(exchange, routing_key, content, encode(body, 'hex'),
        @schema@.queue_message_untraced(options))::text, getdatabaseencoding()))
$body$;

ALTER TABLE @schema@.queue_message_request_row ADD COLUMN xid xid8, ADD COLUMN seq bigint, ADD COLUMN said bytea;

-- Entries that are there: of what waits, else of what was archived first under the id. What is in neither place can be answered no more.
UPDATE @schema@.queue_message_request_row w
SET xid = m.xid, seq = m.seq, said = @schema@.queue_message_request_said(m.exchange, m.routing_key, m.content, m.body, m.options)
FROM @schema@.queue_message m WHERE m.id = w.message;
UPDATE @schema@.queue_message_request_row w
SET xid = a.xid, seq = a.seq, said = @schema@.queue_message_request_said(a.exchange, a.routing_key, a.content, a.body, a.options)
FROM (SELECT DISTINCT ON (o.id) o.* FROM @schema@.queue_message_archive o JOIN @schema@.queue_message_request_row r ON r.message = o.id
      WHERE r.xid IS NULL ORDER BY o.id, o.xid, o.seq) a
WHERE a.id = w.message AND w.xid IS NULL;
DELETE FROM @schema@.queue_message_request_row w WHERE w.xid IS NULL;

-- A replay with the same id has an entry beside that of the message that it repeats.
ALTER TABLE @schema@.queue_message_request_row DROP CONSTRAINT queue_message_request_row_pkey, ALTER COLUMN said SET NOT NULL,
    ADD CONSTRAINT queue_message_request_row_pkey PRIMARY KEY (xid, seq);
CREATE INDEX queue_message_request_row_message_idx ON @schema@.queue_message_request_row (message);

-- As before, and the entry says the place and the words.
CREATE OR REPLACE FUNCTION @schema@.queue_message_request_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET bytea_output = 'hex' SET extra_float_digits = 1 AS $body$
#variable_conflict use_variable
DECLARE
    asked record;
    whole jsonb := to_jsonb(NEW);
    name text := @schema@.queue_message_request_name(TG_RELID);
    key jsonb := @schema@.queue_message_request_key(TG_RELID, whole);
    message record;
BEGIN
    SELECT r.* INTO asked FROM @schema@.queue_message_request r WHERE r.relation = TG_RELID;
    IF asked.id IS NULL THEN
        PERFORM @schema@.queue_message_request_refuse(TG_RELID, key, 'its table is named in no inbox; run queue_message_request() for it again.');
    ELSIF jsonb_populate_record(NEW, @schema@.queue_message_request_blank(asked.answers || asked.error)) OPERATOR(pg_catalog.*<>) NEW THEN
        PERFORM @schema@.queue_message_request_refuse(TG_RELID, key, format(
            'an INSERT leaves %s empty; the settle of its request fills them.', array_to_string(asked.answers || asked.error, ', ')));
    END IF;
    INSERT INTO @schema@.queue_message (exchange, content, options)
    VALUES (name, whole - (asked.answers || asked.own || coalesce(asked.error, asked.answers[1])),
        jsonb_build_object('headers', jsonb_build_object('x-relay-request', name)))
    RETURNING * INTO message;
    -- A row that had this key before is gone: the answer that was asked for then must not find this one.
    -- Locked by a statement of its own, as the next one then sees what a replay has added that committed meanwhile.
    PERFORM FROM @schema@.queue_message_request_row w WHERE w.key = key AND w.request = asked.id ORDER BY w.xid, w.seq FOR UPDATE;
    DELETE FROM @schema@.queue_message_request_row w WHERE w.key = key AND w.request = asked.id;
    INSERT INTO @schema@.queue_message_request_row (message, xid, seq, said, request, key)
    VALUES (message.id, message.xid, message.seq, @schema@.queue_message_request_said(message.exchange, message.routing_key, message.content,
        message.body, message.options), asked.id, key);
    RETURN NULL;
END
$body$;

-- As before, by the place.
CREATE OR REPLACE FUNCTION @schema@.queue_message_request_commit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF EXISTS (SELECT FROM @schema@.queue_message m WHERE (m.xid, m.seq) = (NEW.xid, NEW.seq)) THEN
        RAISE EXCEPTION 'Message %: its answer is committed with its settle alone.', NEW.message USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END
$body$;

-- As before, by the place.
CREATE OR REPLACE FUNCTION @schema@.queue_message_request_archive() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $body$
#variable_conflict use_variable
DECLARE
    asked record;
BEGIN
    SELECT w.key, r.relation::oid AS relation, r.error INTO asked
    FROM @schema@.queue_message_request_row w JOIN @schema@.queue_message_request r ON r.id = w.request WHERE (w.xid, w.seq) = (NEW.xid, NEW.seq);
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF NEW.result = 'success' THEN
        RAISE EXCEPTION 'Message %: a request succeeds with its answer alone.', NEW.id USING ERRCODE = 'restrict_violation';
    ELSIF asked.error IS NOT NULL AND @schema@.queue_message_request_name(asked.relation) IS NOT NULL THEN
        IF current_setting('relay.request_waited', true) = pg_current_xact_id()::text THEN
            PERFORM set_config('lock_timeout', '1ms', true);
        END IF;
        BEGIN
            UPDATE @schema@.queue_message_request_row w SET settled_xid = pg_current_xact_id() WHERE (w.xid, w.seq) = (NEW.xid, NEW.seq);
            EXECUTE format('UPDATE ONLY %s AS t SET %I = $1 WHERE %s', @schema@.queue_message_request_name(asked.relation), asked.error,
                @schema@.queue_message_request_where(asked.relation)) USING concat_ws(': ', NEW.error_code, NEW.error_detail), asked.key;
            UPDATE @schema@.queue_message_request_row w SET settled_xid = NULL WHERE (w.xid, w.seq) = (NEW.xid, NEW.seq);
        EXCEPTION WHEN OTHERS THEN
            IF SQLSTATE = '55P03' THEN
                PERFORM set_config('relay.request_waited', pg_current_xact_id()::text, true);
            END IF;
            RAISE WARNING 'The error of message % is not in its row: %', NEW.id, @schema@.queue_message_one_line(SQLERRM);
        END;
    END IF;
    RETURN NULL;
END
$body$;

-- A replay answers the row of the request that it repeats, if the row waits for an answer still and the replay says what the request said:
-- of several messages under one id a replay may repeat another one, and who replays from a lake names the id and the words.
CREATE OR REPLACE FUNCTION @schema@.queue_message_request_replay() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    words bytea;
BEGIN
    IF NOT EXISTS (SELECT FROM @schema@.queue_message_request_row w WHERE w.message = NEW.replay_of) THEN
        RETURN NULL;
    END IF;
    words := @schema@.queue_message_request_said(NEW.exchange, NEW.routing_key, NEW.content, NEW.body, NEW.options);
    -- The entry is written, not only locked: whoever takes entries away at REPEATABLE READ and does not see the new one must fail.
    WITH repeated AS (
        UPDATE @schema@.queue_message_request_row w SET settled_xid = w.settled_xid WHERE w.message = NEW.replay_of AND w.said = words
        RETURNING w.request, w.key)
    INSERT INTO @schema@.queue_message_request_row (message, xid, seq, said, request, key)
    SELECT DISTINCT NEW.id, NEW.xid, NEW.seq, words, r.request, r.key FROM repeated r;
    RETURN NULL;
END
$body$;

-- The entry goes with a message of another cluster that is renumbered.
CREATE FUNCTION @schema@.queue_message_request_moved() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    UPDATE @schema@.queue_message_request_row w SET xid = NEW.xid, seq = NEW.seq WHERE (w.xid, w.seq) = (OLD.xid, OLD.seq);
    RETURN NULL;
END
$body$;

-- What is archived dead no more can be replayed no more.
CREATE OR REPLACE FUNCTION @schema@.queue_message_request_forget() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    DELETE FROM @schema@.queue_message_request_row w WHERE (w.xid, w.seq) = (OLD.xid, OLD.seq);
    RETURN NULL;
END
$body$;

-- As before, and with the trigger that takes entries along.
CREATE OR REPLACE FUNCTION @schema@.queue_message_request_triggers(wanted boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF wanted = EXISTS (SELECT FROM pg_trigger t WHERE t.tgname = 'queue_message_request_replay'
                        AND t.tgrelid = format('%I.queue_message', @schema_literal@::text)::regclass) THEN
        RETURN;
    ELSIF wanted THEN
        CREATE TRIGGER queue_message_request_replay AFTER INSERT ON @schema@.queue_message
            FOR EACH ROW WHEN (NEW.replay_of IS NOT NULL) EXECUTE FUNCTION @schema@.queue_message_request_replay();
        CREATE TRIGGER queue_message_request_moved AFTER UPDATE OF seq ON @schema@.queue_message
            FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_request_moved();
        CREATE TRIGGER queue_message_request_archive AFTER INSERT ON @schema@.queue_message_archive
            FOR EACH ROW WHEN (NEW.options -> 'headers' ? 'x-relay-request') EXECUTE FUNCTION @schema@.queue_message_request_archive();
        CREATE TRIGGER queue_message_request_forget AFTER DELETE ON @schema@.queue_message_dead
            FOR EACH ROW WHEN (OLD.options -> 'headers' ? 'x-relay-request') EXECUTE FUNCTION @schema@.queue_message_request_forget();
    ELSE
        DROP TRIGGER queue_message_request_replay ON @schema@.queue_message;
        DROP TRIGGER queue_message_request_moved ON @schema@.queue_message;
        DROP TRIGGER queue_message_request_archive ON @schema@.queue_message_archive;
        DROP TRIGGER queue_message_request_forget ON @schema@.queue_message_dead;
    END IF;
END
$body$;

DO $do$
BEGIN
    IF EXISTS (SELECT FROM @schema@.queue_message_request) THEN
        CREATE TRIGGER queue_message_request_moved AFTER UPDATE OF seq ON @schema@.queue_message
            FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_request_moved();
    END IF;
END
$do$;

-- As before, by the place.
CREATE OR REPLACE FUNCTION @schema@.queue_message_answer(message uuid, token uuid, answer jsonb, bytes text[] DEFAULT '{}', OUT code text, OUT sentence text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    place record;
    asked record;
    name text;
    columns text;
    filled text;
    written bigint;
BEGIN
    SELECT m.xid, m.seq INTO place FROM @schema@.queue_message m WHERE m.id = message AND m.lock_token = token FOR UPDATE;
    IF NOT FOUND THEN
        code := 'lock_lost';
        sentence := 'The message is locked by somebody else, or archived.';
        RETURN;
    END IF;
    -- With its replays, in one order, so that of two who answer a row at once the second one finds it answered.
    PERFORM FROM @schema@.queue_message_request_row w
    WHERE (w.request, w.key) = (
        SELECT o.request, o.key FROM @schema@.queue_message_request_row o WHERE (o.xid, o.seq) = (place.xid, place.seq))
    ORDER BY w.xid, w.seq FOR UPDATE;
    SELECT w.request, w.key, r.relation::oid AS relation, r.answers, r.error INTO asked
    FROM @schema@.queue_message_request_row w JOIN @schema@.queue_message_request r ON r.id = w.request
    WHERE (w.xid, w.seq) = (place.xid, place.seq);
    IF NOT FOUND THEN
        code := CASE WHEN answer IS NOT NULL THEN 'request_missing' END;
        sentence := CASE WHEN answer IS NOT NULL THEN
            'The handler returned an answer, and no row waits for one: the message is no request, or its row has been answered or inserted anew.' END;
        RETURN;
    END IF;
    SELECT e.code, e.sentence INTO code, sentence
    FROM @schema@.queue_message_answer_error(asked.relation, asked.answers, answer, bytes) e;
    IF code IS NOT NULL THEN
        RETURN;
    END IF;
    name := @schema@.queue_message_request_name(asked.relation);
    SELECT string_agg(quote_ident(k), ', '), string_agg('v.' || quote_ident(k), ', ') INTO columns, filled FROM jsonb_object_keys(answer) k;
    BEGIN
        UPDATE @schema@.queue_message_request_row w SET settled_xid = pg_current_xact_id() WHERE (w.xid, w.seq) = (place.xid, place.seq);
        EXECUTE format('UPDATE ONLY %s AS t SET (%s) = (SELECT %s FROM jsonb_populate_record(t, $1) AS v)%s WHERE %s', name, columns, filled,
            coalesce(', ' || quote_ident(asked.error) || ' = NULL', ''), @schema@.queue_message_request_where(asked.relation))
            USING answer, asked.key;
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written = 0 THEN
            RAISE no_data_found;
        END IF;
    EXCEPTION
        WHEN no_data_found THEN
            code := 'request_gone';
            sentence := format('The row of the request is not in %s any more.', name);
            RETURN;
        WHEN data_exception OR integrity_constraint_violation THEN
            code := 'answer_refused';
            sentence := @schema@.queue_message_answer_refusal(asked.relation, answer, SQLSTATE, SQLERRM);
            RETURN;
    END;
    DELETE FROM @schema@.queue_message_request_row w WHERE w.request = asked.request AND w.key = asked.key;
END
$body$;
