-- Coming from another outbox: which tables of other systems are read, since when, and what their mappings say (docs/coming.md).
-- What stands here is the same for every layout; the functions of one table are made by `relay adopt` from relay/adopt.

-- One row per table of another system. source: its name as applications write it; kept: where the old rows are, which is another name
-- once a view stands in its place.
CREATE TABLE @schema@.queue_message_adoption (
    source      text        PRIMARY KEY,
    kept        text        NOT NULL,
    layout      text        NOT NULL,
    options     jsonb       NOT NULL DEFAULT '{}',
    "by"        text        NOT NULL CHECK ("by" IN ('trigger', 'view')),
    phase       text        NOT NULL CHECK (phase IN ('mirror', 'switched', 'finished')),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    -- Where the switch stands in the WAL: a slot that has confirmed more has read every row from before it.
    switched_at pg_lsn
);
COMMENT ON TABLE @schema@.queue_message_adoption IS 'Tables of other outboxes whose rows become messages here; written by relay adopt.';
CREATE TRIGGER queue_message_adoption_audit AFTER INSERT OR UPDATE OR DELETE ON @schema@.queue_message_adoption
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_audit_change('source', 'adopt', 'adopt_back');

-- What a mirror saw: one narrow row for each row of the old table, because a counter would make writers wait for one another. Emptied by
-- the switch.
CREATE TABLE @schema@.queue_message_adoption_seen (
    n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source      text NOT NULL,
    exchange    text,
    routing_key text,
    problem     text
);

-- What a layout makes of a row. state: waiting, leased, failed or sent, as the old relay has it. stays: a new row like this one is the old
-- relay's also after the switch. problem: why it can be no message.
CREATE TYPE @schema@.queue_message_mapped AS (
    state text, stays boolean, problem text, id uuid, exchange text, routing_key text, content jsonb, body bytea, options jsonb,
    ordering_key text, available_at timestamptz, expires_at timestamptz
);

-- Archives a row that can be no message, whole, so that the application's transaction goes on as it did. Its id is the message's where it is
-- fit for one; options are a string, so that no replay sends it.
CREATE FUNCTION @schema@.queue_message_adoption_reject(given anyelement, mapped @schema@.queue_message_mapped, problem text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    content jsonb;
    body bytea;
BEGIN
    BEGIN
        content := to_jsonb(given);
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        content := '{}';
        body := convert_to(given::text, 'UTF8');
    END;
    INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, created_at, attempts, handled_by,
        result, error_code, error_detail)
    VALUES (pg_current_xact_id(), nextval(pg_get_serial_sequence(format('%I.queue_message', @schema_literal@::text), 'seq')),
        coalesce((mapped).id, CASE WHEN content ->> 'id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN (content ->> 'id')::uuid END,
            @schema@.queue_message_uuid()), coalesce((mapped).exchange, ''), coalesce((mapped).routing_key, ''), content,
        body, '"the row of another outbox"', now(), 0, 'relay adopt', 'rejected', 'refused', problem);
END
$body$;
