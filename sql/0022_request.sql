-- Request rows: an application inserts a row into a table of its own, a worker of this inbox does what it asks for, and the answer lands in
-- that same row, in the transaction of the message's settle. docs/requests.md is the page for people. Until the first such table is named
-- nothing here costs anybody anything: the triggers on the queue and on the archive are made with it.

CREATE TABLE @schema@.queue_message_request (
    id         integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relation   regclass    NOT NULL UNIQUE,
    answers    text[]      NOT NULL,
    error      text,
    own        text[]      NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE @schema@.queue_message_request IS 'Tables whose rows are requests: what is inserted there becomes a message here, and the answer lands in the row.';

-- Which row a message answers. No header says it, which whoever publishes to the inbox's queues could write. A replay has an entry of its
-- own; the first answer takes them all away. settled_xid: the transaction that may write the row, for as long as the function runs that does.
CREATE TABLE @schema@.queue_message_request_row (
    message     uuid    PRIMARY KEY,
    request     integer NOT NULL REFERENCES @schema@.queue_message_request ON DELETE CASCADE,
    key         jsonb   NOT NULL,
    settled_xid xid8
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
-- A hash, because a primary key may be longer than an entry of a btree.
CREATE INDEX queue_message_request_row_key_idx ON @schema@.queue_message_request_row USING hash (key);

-- A table's name as messages carry it.
CREATE FUNCTION @schema@.queue_message_request_name(relation oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = queue_message_request_name.relation
$body$;

-- The columns of a table's primary key, out of one of its rows.
CREATE FUNCTION @schema@.queue_message_request_key(relation oid, whole jsonb) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT jsonb_object_agg(a.attname, whole -> a.attname::text)
    FROM pg_constraint p JOIN pg_attribute a ON a.attrelid = p.conrelid AND a.attnum = ANY (p.conkey)
    WHERE p.conrelid = queue_message_request_key.relation AND p.contype = 'p'
$body$;

-- The condition that finds a row by its key, each column by the operator of its own index, wherever that stands.
CREATE FUNCTION @schema@.queue_message_request_where(relation oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT string_agg(format('t.%1$I OPERATOR(%2$I.%3$s) (SELECT k.%1$I FROM jsonb_to_record($2) AS k (%1$I %4$s))', a.attname, n.nspname,
        o.oprname, format_type(a.atttypid, a.atttypmod)), ' AND ')
    FROM pg_constraint p JOIN pg_index i ON i.indexrelid = p.conindid
        CROSS JOIN generate_subscripts(p.conkey, 1) AS place
        JOIN pg_attribute a ON a.attrelid = p.conrelid AND a.attnum = p.conkey[place]
        JOIN pg_opclass c ON c.oid = i.indclass[place - 1]
        JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype AND m.amopstrategy = 3
        JOIN pg_operator o ON o.oid = m.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
    WHERE p.conrelid = queue_message_request_where.relation AND p.contype = 'p'
$body$;

-- An object of nulls: what of a row is left out of a comparison.
CREATE FUNCTION @schema@.queue_message_request_blank(names text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT coalesce(jsonb_object_agg(name, NULL::text), '{}') FROM unnest(names) AS name WHERE name IS NOT NULL
$body$;

CREATE FUNCTION @schema@.queue_message_request_refuse(relation oid, key jsonb, words text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    RAISE EXCEPTION 'Row % of %: %', @schema@.queue_message_one_line(key::text), @schema@.queue_message_request_name(relation), words
        USING ERRCODE = 'restrict_violation';
END
$body$;

-- AFTER INSERT of a request: one message, in the same transaction. What a session prints times, bytes and numbers like has no part in the key.
CREATE FUNCTION @schema@.queue_message_request_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET bytea_output = 'hex' SET extra_float_digits = 1 AS $body$
#variable_conflict use_variable
DECLARE
    asked record;
    whole jsonb := to_jsonb(NEW);
    name text := @schema@.queue_message_request_name(TG_RELID);
    key jsonb := @schema@.queue_message_request_key(TG_RELID, whole);
    message uuid;
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
    RETURNING id INTO message;
    -- A row that had this key before is gone: the answer that was asked for then must not find this one.
    DELETE FROM @schema@.queue_message_request_row w WHERE w.key = key AND w.request = asked.id;
    INSERT INTO @schema@.queue_message_request_row (message, request, key) VALUES (message, asked.id, key);
    RETURN NULL;
END
$body$;

-- AFTER UPDATE of a request: what was asked for stays, and answers are written by the settle of their request alone, as the entry says that
-- queue_message_answer() and the archive's trigger write for themselves. Generated columns follow the others.
CREATE FUNCTION @schema@.queue_message_request_update() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET bytea_output = 'hex' SET extra_float_digits = 1 AS $body$
#variable_conflict use_variable
DECLARE
    asked record;
    aside text[];
    rest jsonb;
    key jsonb := @schema@.queue_message_request_key(TG_RELID, to_jsonb(OLD));
BEGIN
    SELECT r.* INTO asked FROM @schema@.queue_message_request r WHERE r.relation = TG_RELID;
    aside := asked.own || ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = TG_RELID AND a.attgenerated <> '');
    rest := @schema@.queue_message_request_blank(aside || asked.answers || asked.error);
    IF jsonb_populate_record(OLD, rest) OPERATOR(pg_catalog.*<>) jsonb_populate_record(NEW, rest) THEN
        PERFORM @schema@.queue_message_request_refuse(TG_RELID, key, 'a request does not change; insert another one.');
    END IF;
    rest := @schema@.queue_message_request_blank(aside);
    IF jsonb_populate_record(OLD, rest) OPERATOR(pg_catalog.*<>) jsonb_populate_record(NEW, rest)
        AND NOT EXISTS (SELECT FROM @schema@.queue_message_request_row w
            WHERE w.key = key AND w.request = asked.id AND w.settled_xid = pg_current_xact_id())
    THEN
        PERFORM @schema@.queue_message_request_refuse(TG_RELID, key, 'an answer is written by the settle of its request alone.');
    END IF;
    RETURN NULL;
END
$body$;

-- Whoever wrote a row has moved its message to the archive by the COMMIT, or nothing is committed.
CREATE FUNCTION @schema@.queue_message_request_commit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF EXISTS (SELECT FROM @schema@.queue_message m WHERE m.id = NEW.message) THEN
        RAISE EXCEPTION 'Message %: its answer is committed with its settle alone.', NEW.message USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END
$body$;
CREATE CONSTRAINT TRIGGER queue_message_request_commit AFTER UPDATE OF settled_xid ON @schema@.queue_message_request_row
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.settled_xid IS NOT NULL)
    EXECUTE FUNCTION @schema@.queue_message_request_commit();

-- A request in the archive: a success has its answer, so its entry is gone; what became of any other is written to its row. Rows that
-- somebody holds must not keep the settle of other messages: a transaction waits a second for the first of them, and for no other.
CREATE FUNCTION @schema@.queue_message_request_archive() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $body$
#variable_conflict use_variable
DECLARE
    asked record;
BEGIN
    SELECT w.key, r.relation::oid AS relation, r.error INTO asked
    FROM @schema@.queue_message_request_row w JOIN @schema@.queue_message_request r ON r.id = w.request WHERE w.message = NEW.id;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF NEW.result = 'success' THEN
        RAISE EXCEPTION 'Message %: a request succeeds with its answer alone.', NEW.id USING ERRCODE = 'restrict_violation';
    ELSIF asked.error IS NOT NULL AND @schema@.queue_message_request_name(asked.relation) IS NOT NULL THEN
        IF current_setting('relay.request_waited', true) = pg_current_xact_id()::text THEN
            PERFORM set_config('lock_timeout', '1ms', true);
        END IF;
        BEGIN
            UPDATE @schema@.queue_message_request_row w SET settled_xid = pg_current_xact_id() WHERE w.message = NEW.id;
            EXECUTE format('UPDATE ONLY %s AS t SET %I = $1 WHERE %s', @schema@.queue_message_request_name(asked.relation), asked.error,
                @schema@.queue_message_request_where(asked.relation)) USING concat_ws(': ', NEW.error_code, NEW.error_detail), asked.key;
            UPDATE @schema@.queue_message_request_row w SET settled_xid = NULL WHERE w.message = NEW.id;
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

-- A replay answers the row of what it repeats, if that waits for an answer still.
CREATE FUNCTION @schema@.queue_message_request_replay() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    INSERT INTO @schema@.queue_message_request_row (message, request, key)
    SELECT NEW.id, w.request, w.key FROM @schema@.queue_message_request_row w WHERE w.message = NEW.replay_of
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$body$;

-- What is archived dead no more can be replayed no more.
CREATE FUNCTION @schema@.queue_message_request_forget() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    DELETE FROM @schema@.queue_message_request_row w
    WHERE w.message = OLD.id AND NOT EXISTS (SELECT FROM @schema@.queue_message m WHERE m.id = OLD.id);
    RETURN NULL;
END
$body$;

-- Why a table cannot hold requests, or null.
CREATE FUNCTION @schema@.queue_message_request_error(relation oid, answers text[], error text, own text[]) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    place record;
    wrong text;
    named text[] := answers || error;
BEGIN
    SELECT c.relkind, @schema@.queue_message_request_name(c.oid) AS name, o.relowner AS owner,
        c.relnamespace = o.relnamespace AND starts_with(c.relname, 'queue_message') AS ours INTO place
    FROM pg_class c, pg_class o WHERE c.oid = relation AND o.oid = format('%I.queue_message', @schema_literal@::text)::regclass;
    IF @schema@.queue_message_setting_value('direction') <> 'inbox' THEN
        RETURN format('The schema %s holds an outbox, whose messages are published: name an inbox, with RELAY_DIRECTION=inbox.', @schema_literal@);
    ELSIF place.relkind IS DISTINCT FROM 'r' OR place.ours THEN
        RETURN 'Requests are the rows of an ordinary table of the application''s own.';
    ELSIF octet_length(place.name) > 255 THEN
        RETURN 'The names of schema and table are together longer than 255 bytes.';
    ELSIF NOT EXISTS (SELECT FROM pg_constraint p WHERE p.conrelid = relation AND p.contype = 'p') THEN
        RETURN format('The table %s has no primary key, so no answer could find its row again.', place.name);
    ELSIF coalesce(cardinality(answers), 0) = 0 THEN
        RETURN 'Name one answer column at the least.';
    ELSIF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = relation AND t.tgname = 'queue_message_request_insert'
                  AND t.tgfoid <> format('%I.queue_message_request_insert()', @schema_literal@::text)::regprocedure) THEN
        RETURN format('The table %s holds requests of another inbox.', place.name);
    ELSIF NOT (has_table_privilege(place.owner, relation, 'SELECT') AND has_table_privilege(place.owner, relation, 'UPDATE')) THEN
        RETURN format('Answers are written by %s, who owns the inbox: GRANT SELECT, UPDATE ON %s to it.', place.owner::regrole, place.name);
    END IF;
    SELECT format('The column %s is no answer column: it must be there, be named once, be no part of the primary key, may hold NULL, '
        'and have no default.', quote_ident(given.name)) INTO wrong
    FROM unnest(named) AS given (name) LEFT JOIN pg_attribute a ON a.attrelid = relation AND a.attname = given.name AND a.attnum > 0
        AND NOT a.attisdropped AND NOT a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = ''
    WHERE given.name IS NOT NULL AND (a.attname IS NULL OR cardinality(array_positions(named || own, given.name)) > 1) LIMIT 1;
    IF wrong IS NULL AND error IS NOT NULL
        AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = relation AND a.attname = error AND a.atttypid = 'text'::regtype)
    THEN
        wrong := format('The column %s must be of type text, to hold an error.', quote_ident(error));
    END IF;
    -- By the primary key an answer finds its row, so that does not change.
    RETURN coalesce(wrong, (SELECT format('There is no column %s that the application could keep for itself.', quote_ident(given.name))
        FROM unnest(own) AS given (name) WHERE NOT EXISTS (SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = relation AND a.attname = given.name AND a.attnum > 0 AND NOT a.attisdropped AND NOT t.typnotnull
                AND NOT EXISTS (SELECT FROM pg_constraint p WHERE p.conrelid = relation AND p.contype = 'p' AND a.attnum = ANY (p.conkey)))
        LIMIT 1));
END
$body$;

-- Makes the rows that are inserted into a table from now on requests to the workers of this inbox. answers: the columns that a handler's
-- mapping fills. error: a column of type text that says why there is no answer. own: columns that the application keeps for itself, may
-- change, and that are no part of the message. Called again it takes the new lists.
CREATE FUNCTION @schema@.queue_message_request(relation regclass, answers text[], error text DEFAULT NULL, own text[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $body$
#variable_conflict use_variable
DECLARE
    wrong text := @schema@.queue_message_request_error(relation, answers, error, own);
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOCK TABLE @schema@.queue_message_request IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM @schema@.queue_message_request r WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = r.relation);
    INSERT INTO @schema@.queue_message_request AS r (relation, answers, error, own) VALUES (relation, answers, error, coalesce(own, '{}'))
    ON CONFLICT ON CONSTRAINT queue_message_request_relation_key
    DO UPDATE SET answers = excluded.answers, error = excluded.error, own = excluded.own, changed_at = now();
    IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = relation AND t.tgname = 'queue_message_request_insert') THEN
        EXECUTE format('CREATE TRIGGER queue_message_request_insert AFTER INSERT ON %s FOR EACH ROW EXECUTE FUNCTION %I.queue_message_request_insert()', relation, @schema_literal@::text);
        EXECUTE format('CREATE TRIGGER queue_message_request_update AFTER UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION %I.queue_message_request_update()', relation, @schema_literal@::text);
    END IF;
    PERFORM @schema@.queue_message_request_triggers(true);
END
$body$;

-- Takes that back: rows and answers stay, as rows like any others; what is still in the queue can be answered no more.
CREATE FUNCTION @schema@.queue_message_request_end(relation regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $body$
#variable_conflict use_variable
BEGIN
    LOCK TABLE @schema@.queue_message_request IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM @schema@.queue_message_request r WHERE r.relation = relation;
    IF FOUND THEN
        EXECUTE format('DROP TRIGGER IF EXISTS queue_message_request_insert ON %s', relation);
        EXECUTE format('DROP TRIGGER IF EXISTS queue_message_request_update ON %s', relation);
    END IF;
    PERFORM @schema@.queue_message_request_triggers(EXISTS (SELECT FROM @schema@.queue_message_request));
END
$body$;

-- What requests need of the queue and the archive is there while there are tables of them.
CREATE FUNCTION @schema@.queue_message_request_triggers(wanted boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF wanted = EXISTS (SELECT FROM pg_trigger t WHERE t.tgname = 'queue_message_request_replay'
                        AND t.tgrelid = format('%I.queue_message', @schema_literal@::text)::regclass) THEN
        RETURN;
    ELSIF wanted THEN
        CREATE TRIGGER queue_message_request_replay AFTER INSERT ON @schema@.queue_message
            FOR EACH ROW WHEN (NEW.replay_of IS NOT NULL) EXECUTE FUNCTION @schema@.queue_message_request_replay();
        CREATE TRIGGER queue_message_request_archive AFTER INSERT ON @schema@.queue_message_archive
            FOR EACH ROW WHEN (NEW.options -> 'headers' ? 'x-relay-request') EXECUTE FUNCTION @schema@.queue_message_request_archive();
        CREATE TRIGGER queue_message_request_forget AFTER DELETE ON @schema@.queue_message_dead
            FOR EACH ROW WHEN (OLD.options -> 'headers' ? 'x-relay-request') EXECUTE FUNCTION @schema@.queue_message_request_forget();
    ELSE
        DROP TRIGGER queue_message_request_replay ON @schema@.queue_message;
        DROP TRIGGER queue_message_request_archive ON @schema@.queue_message_archive;
        DROP TRIGGER queue_message_request_forget ON @schema@.queue_message_dead;
    END IF;
END
$body$;

-- Why a value cannot be written: the column, where its type refuses, and PostgreSQL's words without the value.
CREATE FUNCTION @schema@.queue_message_answer_refusal(relation oid, answer jsonb, state text, words text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
BEGIN
    FOR one IN SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type FROM pg_attribute a
               WHERE a.attrelid = relation AND answer ? a.attname::text LOOP
        BEGIN
            EXECUTE format('SELECT FROM jsonb_to_record($1) AS v (%1$I %2$s) WHERE v.%1$I IS NULL', one.name, one.type) USING answer;
        EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
            RETURN format('The answer column %s takes no such value: %s.', quote_ident(one.name),
                coalesce(@schema@.queue_message_refusal(SQLSTATE, SQLERRM), SQLSTATE));
        END;
    END LOOP;
    RETURN format('The answer is refused: %s.', CASE WHEN state LIKE '22%' THEN @schema@.queue_message_refusal(state, words)
        ELSE @schema@.queue_message_one_line(words, 400) END);
END
$body$;

-- Why an answer is none, before anything is tried: code and sentence, or nothing. bytes: columns that are given as bytes, in hexadecimal.
CREATE FUNCTION @schema@.queue_message_answer_error(relation oid, answers text[], answer jsonb, bytes text[], OUT code text, OUT sentence text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    name text := @schema@.queue_message_request_name(relation);
BEGIN
    IF name IS NULL THEN
        code := 'request_gone';
        sentence := 'The table of the request is not there any more.';
    ELSIF coalesce(answer, '{}') = '{}' THEN
        code := 'answer_missing';
        sentence := format('The message is a request of %s, and the handler returned no answer: return a mapping from columns to values.', name);
    ELSE
        SELECT 'answer_unknown', format('The handler answers %s, which is no answer column of %s (%s).',
            quote_ident(@schema@.queue_message_one_line(given.name, 63)), name, array_to_string(answers, ', ')) INTO code, sentence
        FROM jsonb_object_keys(answer) AS given (name) WHERE given.name <> ALL (answers) LIMIT 1;
    END IF;
    IF code IS NULL THEN
        SELECT 'answer_refused', format('The answer column %s takes no bytes: decode them, or make it bytea.', quote_ident(a.attname))
            INTO code, sentence
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = relation AND a.attname = ANY (bytes) AND 'bytea'::regtype NOT IN (t.oid, t.typbasetype) LIMIT 1;
    END IF;
END
$body$;

-- Writes an answer into the row of its request; the same transaction must settle the message. code and sentence say why not, and then
-- nothing is written; both null: it is, or the message is no request and has no answer.
CREATE FUNCTION @schema@.queue_message_answer(message uuid, token uuid, answer jsonb, bytes text[] DEFAULT '{}', OUT code text, OUT sentence text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    asked record;
    name text;
    columns text;
    filled text;
    written bigint;
BEGIN
    PERFORM FROM @schema@.queue_message m WHERE m.id = message AND m.lock_token = token FOR UPDATE;
    IF NOT FOUND THEN
        code := 'lock_lost';
        sentence := 'The message is locked by somebody else, or archived.';
        RETURN;
    END IF;
    -- With its replays, in one order, so that of two who answer a row at once the second one finds it answered.
    PERFORM FROM @schema@.queue_message_request_row w
    WHERE (w.request, w.key) = (SELECT o.request, o.key FROM @schema@.queue_message_request_row o WHERE o.message = message)
    ORDER BY w.message FOR UPDATE;
    SELECT w.request, w.key, r.relation::oid AS relation, r.answers, r.error INTO asked
    FROM @schema@.queue_message_request_row w JOIN @schema@.queue_message_request r ON r.id = w.request WHERE w.message = message;
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
        UPDATE @schema@.queue_message_request_row w SET settled_xid = pg_current_xact_id() WHERE w.message = message;
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
