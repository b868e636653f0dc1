-- Message contracts: which JSON Schema (2020-12) the contents of an exchange and routing key must satisfy. Relays and clients check them;
-- the database keeps them, and refuses what it can tell is none.

-- One row per version. Of each exchange and pattern the newest version whose mode is enforce holds, and a newer one whose mode is warn.
CREATE TABLE @schema@.queue_message_contract (
    exchange    text        NOT NULL,
    -- A pattern as of a topic exchange: * is one word, # any number of them.
    routing_key text        NOT NULL,
    version     integer     NOT NULL,
    mode        text        NOT NULL DEFAULT 'warn',
    schema      jsonb       NOT NULL,
    added_at    timestamptz NOT NULL DEFAULT now(),
    added_by    text        NOT NULL DEFAULT session_user,
    PRIMARY KEY (exchange, routing_key, version),
    CONSTRAINT queue_message_contract_exchange_check CHECK (@schema@.queue_message_check_size('exchange', octet_length(exchange), 255)),
    CONSTRAINT queue_message_contract_routing_key_check CHECK (@schema@.queue_message_check_size('routing_key', octet_length(routing_key), 255)),
    CONSTRAINT queue_message_contract_version_check CHECK (version BETWEEN 1 AND 1000000)
);
COMMENT ON TABLE @schema@.queue_message_contract IS 'Which JSON Schema the contents of an exchange and routing key must satisfy.';

-- NULL where a row may stand, else the sentence.
CREATE FUNCTION @schema@.queue_message_contract_error(mode text, schema jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT CASE
        WHEN mode NOT IN ('enforce', 'warn') THEN 'A contract''s mode must be enforce or warn.'
        WHEN jsonb_typeof(schema) NOT IN ('object', 'boolean') THEN 'A contract''s schema must be a JSON object, or true or false.'
        WHEN octet_length(schema::text) > 262144 THEN
            format('The schema of a contract is %s bytes long; the limit is 262144 bytes.', octet_length(schema::text))
        WHEN schema ? '$schema' AND schema ->> '$schema' NOT IN
            ('https://json-schema.org/draft/2020-12/schema', 'https://json-schema.org/draft/2020-12/schema#') THEN
            'A contract''s schema must be of https://json-schema.org/draft/2020-12/schema: correct $schema.'
    END
$body$;

-- A version is what it was when it was added; only its mode changes.
CREATE FUNCTION @schema@.queue_message_contract_check() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    sentence text := @schema@.queue_message_contract_error(NEW.mode, NEW.schema);
BEGIN
    IF sentence IS NOT NULL THEN
        RAISE EXCEPTION '%', sentence USING ERRCODE = 'check_violation', TABLE = 'queue_message_contract', COLUMN = 'schema';
    ELSIF TG_OP = 'UPDATE' AND (OLD.exchange, OLD.routing_key, OLD.version, OLD.schema) IS DISTINCT FROM
        (NEW.exchange, NEW.routing_key, NEW.version, NEW.schema) THEN
        RAISE EXCEPTION 'Version % of a contract is final but for its mode: add another version.', OLD.version
            USING ERRCODE = 'restrict_violation', TABLE = 'queue_message_contract';
    END IF;
    RETURN NEW;
END
$body$;

CREATE TRIGGER queue_message_contract_check BEFORE INSERT OR UPDATE ON @schema@.queue_message_contract
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_contract_check();
CREATE TRIGGER queue_message_contract_audit AFTER INSERT OR UPDATE OR DELETE ON @schema@.queue_message_contract
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_audit_change('exchange', 'contract', 'remove_contract');

-- Adds a version and returns its number, the next one unless it is given. What is there already, as the newest version or as the one that is
-- named, is not added again, and another schema under a number that is taken is refused.
CREATE FUNCTION @schema@.queue_message_contract_add(
    exchange text, routing_key text, schema jsonb, version integer DEFAULT NULL, mode text DEFAULT 'warn', by text DEFAULT session_user,
    OUT added integer, OUT made boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    newest record;
BEGIN
    -- Two at once would take the same number. Whoever reads the contracts does not wait.
    LOCK TABLE @schema@.queue_message_contract IN SHARE ROW EXCLUSIVE MODE;
    SELECT c.version, c.schema INTO newest FROM @schema@.queue_message_contract c
    WHERE c.exchange = exchange AND c.routing_key = routing_key AND (version IS NULL OR c.version = version)
    ORDER BY c.version DESC LIMIT 1;
    IF newest.schema = schema THEN
        added := newest.version;
        made := false;
        RETURN;
    ELSIF newest.version = version THEN
        RAISE EXCEPTION 'Version % of this contract is there with another schema, and final: add another version.', version
            USING ERRCODE = 'restrict_violation', TABLE = 'queue_message_contract';
    END IF;
    added := coalesce(version, newest.version + 1, 1);
    made := true;
    INSERT INTO @schema@.queue_message_contract (exchange, routing_key, version, mode, schema, added_by)
    VALUES (exchange, routing_key, added, mode, schema, @schema@.queue_message_signed(by));
END
$body$;

-- Changes the mode of a version, the newest unless it is named; returns that version and the mode of before.
CREATE FUNCTION @schema@.queue_message_contract_mode(
    exchange text, routing_key text, mode text, version integer DEFAULT NULL, OUT changed integer, OUT previous text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    SELECT c.version, c.mode INTO changed, previous FROM @schema@.queue_message_contract c
    WHERE c.exchange = exchange AND c.routing_key = routing_key AND (version IS NULL OR c.version = version)
    ORDER BY c.version DESC LIMIT 1 FOR UPDATE;
    IF changed IS NULL THEN
        RAISE EXCEPTION 'There is no such contract.' USING ERRCODE = 'no_data_found';
    END IF;
    UPDATE @schema@.queue_message_contract c SET mode = mode
    WHERE c.exchange = exchange AND c.routing_key = routing_key AND c.version = changed AND c.mode IS DISTINCT FROM mode;
END
$body$;

-- Removes a version, or all of them where none is named; returns how many there were.
CREATE FUNCTION @schema@.queue_message_contract_remove(exchange text, routing_key text, version integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    WITH gone AS (
        DELETE FROM @schema@.queue_message_contract c
        WHERE c.exchange = queue_message_contract_remove.exchange AND c.routing_key = queue_message_contract_remove.routing_key
          AND (queue_message_contract_remove.version IS NULL OR c.version = queue_message_contract_remove.version)
        RETURNING 1
    )
    SELECT count(*) FROM gone
$body$;

-- Which exchanges and routing keys the 50,000 messages settled last had, found by the index of archived_xid; no contents.
CREATE VIEW @schema@.queue_message_recent_key AS
    SELECT exchange, routing_key, count(*) AS messages, max(archived_at) AS archived_at
    FROM (SELECT a.exchange, a.routing_key, a.archived_at FROM @schema@.queue_message_archive a ORDER BY a.archived_xid DESC LIMIT 50000) newest
    GROUP BY exchange, routing_key;
