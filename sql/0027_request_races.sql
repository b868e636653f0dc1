-- A replay that commits together with the first answer, or with a new row under the same key, leaves no entry that could answer again.

-- AFTER INSERT of a request: one message, in the same transaction. What a session prints times, bytes and numbers like has no part in the key.
CREATE OR REPLACE FUNCTION @schema@.queue_message_request_insert() RETURNS trigger
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
    -- Locked by a statement of its own, as the next one then sees what a replay has added that committed meanwhile.
    PERFORM FROM @schema@.queue_message_request_row w WHERE w.key = key AND w.request = asked.id ORDER BY w.message FOR UPDATE;
    DELETE FROM @schema@.queue_message_request_row w WHERE w.key = key AND w.request = asked.id;
    INSERT INTO @schema@.queue_message_request_row (message, request, key) VALUES (message, asked.id, key);
    RETURN NULL;
END
$body$;

-- A replay answers the row of what it repeats, if that waits for an answer still.
CREATE OR REPLACE FUNCTION @schema@.queue_message_request_replay() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    -- The entry is written, not only locked: whoever takes entries away at REPEATABLE READ and does not see the new one must fail.
    WITH repeated AS (
        UPDATE @schema@.queue_message_request_row w SET settled_xid = w.settled_xid WHERE w.message = NEW.replay_of
        RETURNING w.request, w.key)
    INSERT INTO @schema@.queue_message_request_row (message, request, key)
    SELECT NEW.id, r.request, r.key FROM repeated r ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$body$;
