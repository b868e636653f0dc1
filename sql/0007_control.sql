-- The control plane: everything an operator does is a function, so psql is enough in an emergency. Definer's rights, granted by role.

-- A foreign name as a shell takes it, so that it can be copied out of a sentence: in quotes; where a letter of it may not be printable, as
-- its bytes. The rules are those of relay/cli/output.py, but here what is neither ASCII nor a letter or a digit counts as not printable.
CREATE FUNCTION @schema@.queue_message_quoted(name text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT CASE WHEN name !~ '[^ -~[:alnum:]]' THEN '''' || replace(name, '''', '''"''"''') || ''''
        ELSE '$''' || string_agg(CASE WHEN letter IN ('''', '"', E'\\') THEN E'\\' || letter WHEN letter ~ '[ -~[:alnum:]]' THEN letter
            ELSE regexp_replace(encode(convert_to(letter, 'UTF8'), 'hex'), '(..)', E'\\\\x\\1', 'g') END, '' ORDER BY place) || '''' END
    FROM regexp_split_to_table(name, '') WITH ORDINALITY AS letters (letter, place)
$body$;

-- A name that no message can have holds nothing: the limits of these tables are those of the INSERT, and its words too.

-- Exchanges that are held; relays read it every two seconds.
CREATE TABLE @schema@.queue_message_pause (
    exchange  text        PRIMARY KEY,
    paused_at timestamptz NOT NULL DEFAULT now(),
    paused_by text        NOT NULL DEFAULT session_user,
    reason    text        NOT NULL DEFAULT '',
    CONSTRAINT queue_message_pause_exchange_check CHECK (@schema@.queue_message_check_size('exchange', octet_length(exchange), 255))
);

-- Exchanges of which at most so many messages a second are sent, over all relays; read with the others.
CREATE TABLE @schema@.queue_message_limit (
    exchange   text             PRIMARY KEY,
    per_second double precision NOT NULL,
    limited_at timestamptz      NOT NULL DEFAULT now(),
    limited_by text             NOT NULL DEFAULT session_user,
    reason     text             NOT NULL DEFAULT '',
    -- A NaN is above every number.
    CONSTRAINT queue_message_limit_per_second_check CHECK (per_second BETWEEN 0.001 AND 1000000),
    CONSTRAINT queue_message_limit_exchange_check CHECK (@schema@.queue_message_check_size('exchange', octet_length(exchange), 255))
);

-- Ordering keys that are parked, by an operator or because their head became dead (policy on_dead_key = park).
CREATE TABLE @schema@.queue_message_key_hold (
    ordering_key text        PRIMARY KEY,
    held_at      timestamptz NOT NULL DEFAULT now(),
    held_by      text        NOT NULL DEFAULT session_user,
    reason       text        NOT NULL DEFAULT '',
    CONSTRAINT queue_message_key_hold_ordering_key_check
        CHECK (@schema@.queue_message_check_size('ordering_key', octet_length(ordering_key), 1024))
);

-- What was done by hand, and by which login: what the tables themselves forget, such as who let something go on, or who sent a success
-- again. Rows stay, and nobody is granted more than reading them.
CREATE TABLE @schema@.queue_message_audit (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    acted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    acted_by text        NOT NULL DEFAULT session_user,
    action   text        NOT NULL,
    -- The exchange, the ordering key, the setting, the message's id or the job.
    subject  text        NOT NULL,
    -- What held before and what holds since; null for nothing.
    was      jsonb,
    became   jsonb
);
COMMENT ON TABLE @schema@.queue_message_audit IS 'What was done by hand, and by which login.';

-- Notes a change of a table of the control plane, whoever makes it and by whatever statement; arguments: the column that names the subject,
-- what a write of a row is called, and what its end.
CREATE FUNCTION @schema@.queue_message_audit_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    was jsonb := to_jsonb(OLD);
    became jsonb := to_jsonb(NEW);
BEGIN
    INSERT INTO @schema@.queue_message_audit (action, subject, was, became)
    VALUES (CASE WHEN became IS NULL THEN TG_ARGV[2] ELSE TG_ARGV[1] END, coalesce(became, was) ->> TG_ARGV[0],
            was - TG_ARGV[0], became - TG_ARGV[0]);
    RETURN NULL;
END
$body$;

CREATE TRIGGER queue_message_pause_audit AFTER INSERT OR UPDATE OR DELETE ON @schema@.queue_message_pause
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_audit_change('exchange', 'pause', 'resume');
CREATE TRIGGER queue_message_limit_audit AFTER INSERT OR UPDATE OR DELETE ON @schema@.queue_message_limit
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_audit_change('exchange', 'limit', 'unlimit');
CREATE TRIGGER queue_message_key_hold_audit AFTER INSERT OR UPDATE OR DELETE ON @schema@.queue_message_key_hold
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_audit_change('ordering_key', 'park', 'resume_key');
-- A migration writes the settings of a new database; what comes later are changes.
CREATE TRIGGER queue_message_setting_audit AFTER UPDATE ON @schema@.queue_message_setting
    FOR EACH ROW WHEN (OLD.value IS DISTINCT FROM NEW.value)
    EXECUTE FUNCTION @schema@.queue_message_audit_change('name', 'set', '');

-- Who did it, for the record: always the login itself, beside what it says of itself (a person behind a shared login).
CREATE FUNCTION @schema@.queue_message_signed(by text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $body$
    SELECT CASE WHEN coalesce(by, '') IN ('', session_user) THEN session_user::text
        ELSE format('%s (as %s)', session_user, @schema@.queue_message_one_line(by, 63)) END
$body$;

-- Holds an exchange; true if it was not held before. Where it was, a new reason replaces the old one, and no reason changes nothing.
CREATE FUNCTION @schema@.queue_message_pause(exchange text, reason text DEFAULT '', by text DEFAULT session_user) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    WITH held AS (
        INSERT INTO @schema@.queue_message_pause (exchange, reason, paused_by)
        VALUES (queue_message_pause.exchange, queue_message_pause.reason, @schema@.queue_message_signed(queue_message_pause.by))
        ON CONFLICT ON CONSTRAINT queue_message_pause_pkey DO UPDATE SET reason = excluded.reason, paused_by = excluded.paused_by
        WHERE excluded.reason <> ''
        -- What an insert made has no xmax; what it found and changed was locked first.
        RETURNING xmax = 0 AS made
    )
    SELECT coalesce(bool_or(held.made), false) FROM held
$body$;

-- Lets an exchange go on; true if it was held.
CREATE FUNCTION @schema@.queue_message_resume(exchange text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    WITH freed AS (DELETE FROM @schema@.queue_message_pause p WHERE p.exchange = queue_message_resume.exchange RETURNING 1)
    SELECT EXISTS (SELECT FROM freed)
$body$;

-- Limits an exchange to so many messages a second, over all relays; true if it was not limited before. Another figure replaces the old one,
-- with who, when and why; with the same figure only a new reason changes anything.
CREATE FUNCTION @schema@.queue_message_limit(exchange text, per_second double precision, reason text DEFAULT '', by text DEFAULT session_user)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    made boolean;
BEGIN
    IF per_second IS NULL OR per_second NOT BETWEEN 0.001 AND 1000000 THEN
        -- Of no class of its own: the words of class 22 are withheld.
        RAISE EXCEPTION 'A limit must be from 0.001 to 1000000 messages a second; to send nothing of an exchange, pause it.';
    END IF;
    INSERT INTO @schema@.queue_message_limit AS l (exchange, per_second, reason, limited_by)
    VALUES (exchange, per_second, reason, @schema@.queue_message_signed(by))
    ON CONFLICT ON CONSTRAINT queue_message_limit_pkey DO UPDATE
    SET per_second = excluded.per_second, reason = excluded.reason, limited_by = excluded.limited_by,
        limited_at = CASE WHEN l.per_second = excluded.per_second THEN l.limited_at ELSE excluded.limited_at END
    WHERE l.per_second <> excluded.per_second OR excluded.reason <> ''
    RETURNING xmax = 0 INTO made;
    RETURN coalesce(made, false);
END
$body$;

-- Lifts the limit of an exchange; true if it had one.
CREATE FUNCTION @schema@.queue_message_unlimit(exchange text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    WITH lifted AS (DELETE FROM @schema@.queue_message_limit l WHERE l.exchange = queue_message_unlimit.exchange RETURNING 1)
    SELECT EXISTS (SELECT FROM lifted)
$body$;

-- Makes the head of an ordering key due, so that the lane's owner finds it by the small index of waiting messages.
CREATE FUNCTION @schema@.queue_message_wake_key(key text, now timestamptz DEFAULT NULL) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    WITH head AS (
        SELECT m.xid, m.seq FROM @schema@.queue_message m WHERE m.ordering_key = queue_message_wake_key.key ORDER BY m.xid, m.seq LIMIT 1
    ), free AS (
        -- Whoever else has it locked must not be waited for; a patrol of the lane's owner finds it later.
        SELECT m.xid, m.seq FROM head JOIN @schema@.queue_message m ON (m.xid, m.seq) = (head.xid, head.seq) FOR UPDATE OF m SKIP LOCKED
    )
    UPDATE @schema@.queue_message m SET available_at = coalesce(queue_message_wake_key.now, pg_catalog.now())
    FROM free AS head WHERE (m.xid, m.seq) = (head.xid, head.seq) AND m.lock_expires_at IS NULL AND m.available_at IS NULL
$body$;

-- Parks an ordering key: nothing of it is claimed until it is resumed. True if it was not parked before; a new reason as with a pause.
CREATE FUNCTION @schema@.queue_message_key_park(key text, reason text DEFAULT '', by text DEFAULT session_user) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    WITH held AS (
        INSERT INTO @schema@.queue_message_key_hold (ordering_key, reason, held_by)
        VALUES (queue_message_key_park.key, queue_message_key_park.reason, @schema@.queue_message_signed(queue_message_key_park.by))
        ON CONFLICT ON CONSTRAINT queue_message_key_hold_pkey DO UPDATE SET reason = excluded.reason, held_by = excluded.held_by
        WHERE excluded.reason <> ''
        RETURNING xmax = 0 AS made
    )
    SELECT coalesce(bool_or(held.made), false) FROM held
$body$;

-- Lets an ordering key go on; true if it was parked.
CREATE FUNCTION @schema@.queue_message_key_resume(key text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    held boolean;
BEGIN
    DELETE FROM @schema@.queue_message_key_hold h WHERE h.ordering_key = key;
    held := FOUND;
    PERFORM @schema@.queue_message_wake_key(key);
    RETURN held;
END
$body$;

-- Moves queued messages to the archive with a result that no broker gave; returns what it moved. The one way out of the queue beside a
-- settle.
CREATE FUNCTION @schema@.queue_message_archive_now(ids uuid[], result text, error_code text, error_detail text, handled_by text) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    WITH gone AS (
        DELETE FROM @schema@.queue_message m WHERE m.id = ANY (queue_message_archive_now.ids) RETURNING m.*
    ), kept AS (
        INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, available_at,
            expires_at, created_at, attempts, replay_of, result, error_code, error_detail, handled_by)
        SELECT g.xid, g.seq, g.id, g.exchange, g.routing_key, g.content, g.body, g.options, g.ordering_key, g.available_at,
            g.expires_at, g.created_at, g.attempts, g.replay_of, queue_message_archive_now.result, queue_message_archive_now.error_code,
            queue_message_archive_now.error_detail, queue_message_archive_now.handled_by
        FROM gone g
        RETURNING 1
    )
    SELECT count(*) FROM kept
$body$;

-- Archives the head of an ordering key as discarded, code skipped, and makes its successor due. Returns the head's id.
-- Refused while a living lock holds the head, as it may be with the broker, and where the head is not the expected one: that may have been
-- settled since somebody looked, and its successor is another message.
CREATE FUNCTION @schema@.queue_message_key_skip(key text, by text DEFAULT session_user, expected uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    head record;
BEGIN
    SELECT m.id, m.lock_expires_at, m.last_error INTO head
    FROM @schema@.queue_message m WHERE m.ordering_key = key ORDER BY m.xid, m.seq LIMIT 1 FOR UPDATE;
    IF head.id IS NULL THEN
        RAISE EXCEPTION 'No message waits under the ordering key %.', @schema@.queue_message_quoted(key) USING ERRCODE = 'no_data_found';
    ELSIF head.id <> expected THEN
        RAISE EXCEPTION 'The first message of the ordering key % is %, not % any more: look again.',
            @schema@.queue_message_quoted(key), head.id, expected USING ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF head.lock_expires_at > now() THEN
        RAISE EXCEPTION 'Message % is locked until %; try again after that.', head.id, head.lock_expires_at USING ERRCODE = 'object_in_use';
    END IF;
    PERFORM @schema@.queue_message_archive_now(ARRAY[head.id], 'discarded', 'skipped', head.last_error, @schema@.queue_message_signed(by));
    PERFORM @schema@.queue_message_wake_key(key);
    RETURN head.id;
END
$body$;

-- Answers a dead message: it counts as seen, with who and why. Returns how many archived messages of that id it answered now.
CREATE FUNCTION @schema@.queue_message_dead_acknowledge(message uuid, by text DEFAULT session_user, note text DEFAULT '') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    answered bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM @schema@.queue_message_dead d WHERE d.id = message) THEN
        RAISE EXCEPTION 'No dead message has the id %.', message USING ERRCODE = 'no_data_found';
    END IF;
    INSERT INTO @schema@.queue_message_dead_ack (xid, seq, acknowledged_by, note)
    SELECT d.xid, d.seq, @schema@.queue_message_signed(by), queue_message_dead_acknowledge.note FROM @schema@.queue_message_dead d WHERE d.id = message
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS answered = ROW_COUNT;
    RETURN answered;
END
$body$;

-- Changes a setting and returns what held before; a value that makes no sense is refused with a sentence.
CREATE FUNCTION @schema@.queue_message_config_set(setting text, value text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    previous text := @schema@.queue_message_setting_value(setting);
BEGIN
    INSERT INTO @schema@.queue_message_setting AS s (name, value) VALUES (setting, queue_message_config_set.value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;
    RETURN previous;
END
$body$;
