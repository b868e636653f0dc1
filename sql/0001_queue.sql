-- The hot table and what the relays share. No index of queue_message mentions a column that a claim changes, so claims stay HOT.

-- Both are PL/pgSQL because an INSERT pays for every function and operator in its defaults and generated columns as it is planned and
-- started, and PL/pgSQL keeps its plan. As SQL functions they cost a one-row INSERT 14 and 12 microseconds, so it is one or two.

-- A time-ordered uuid (RFC 9562, version 7): neighbours in time are neighbours in the indexes.
CREATE FUNCTION @schema@.queue_message_uuid() RETURNS uuid LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid;
END
$$;

-- PostgreSQL 18 brings its own. A database that is upgraded to it keeps the function above, which does as well.
DO $do$
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        CREATE OR REPLACE FUNCTION @schema@.queue_message_uuid() RETURNS uuid LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
        #variable_conflict use_variable
        BEGIN
            RETURN uuidv7();
        END
        $$;
    END IF;
END
$do$;

-- Ordering key to lane. md5 never changes between versions, hashtext may. The number of lanes (64) is fixed: it is part of stored rows.
CREATE FUNCTION @schema@.queue_message_lane_of(ordering_key text) RETURNS smallint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN (('x' || substr(md5(ordering_key), 1, 8))::bit(32)::bigint & 63)::smallint;
END
$$;

-- xid is declared before seq: defaults are evaluated in column order, so a transaction has its id before it takes a number,
-- and (xid, seq) is claim order: a transaction's messages together, transactions in the order in which they began to write.
CREATE TABLE @schema@.queue_message (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq bigint GENERATED ALWAYS AS IDENTITY,
    id uuid NOT NULL DEFAULT @schema@.queue_message_uuid(),
    exchange text NOT NULL,
    routing_key text NOT NULL DEFAULT '',
    content jsonb NOT NULL DEFAULT '{}',
    body bytea,
    options jsonb NOT NULL DEFAULT '{}',
    ordering_key text,
    lane smallint GENERATED ALWAYS AS (@schema@.queue_message_lane_of(ordering_key)) STORED,
    available_at timestamptz,
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    lock_expires_at timestamptz,
    lock_token uuid,
    locked_by int,
    attempts int NOT NULL DEFAULT 0,
    replay_of uuid,
    last_error text,
    CONSTRAINT queue_message_pkey PRIMARY KEY (xid, seq),
    CONSTRAINT queue_message_id_key UNIQUE (id)
) WITH (
    -- More than half of each page is left for the claims' new row versions, which are 28 bytes wider: at 50 up to 15 of 100 found no room.
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
    -- Truncation takes ACCESS EXCLUSIVE and would stall inserts.
    vacuum_truncate = off, toast.vacuum_truncate = off,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 5000, toast.autovacuum_vacuum_cost_delay = 0
);

-- Messages that wait: delayed by the app, by a retry, or back from an expired lock.
CREATE INDEX queue_message_available_at_idx ON @schema@.queue_message (available_at) WHERE available_at IS NOT NULL;
-- Ordered messages in claim order, to discover them; the lane stands in it so that other owners' messages are stepped over within the
-- index.
CREATE INDEX queue_message_ordered_idx ON @schema@.queue_message (xid, seq, lane) WHERE ordering_key IS NOT NULL;
-- Ordered messages by key, to find a key's head and its successor however many stand behind a parked head.
CREATE INDEX queue_message_ordering_key_idx ON @schema@.queue_message (ordering_key, xid, seq) WHERE ordering_key IS NOT NULL;

COMMENT ON TABLE @schema@.queue_message IS 'Messages that wait for the relay; INSERT is the whole publish interface.';

-- One row per running relay. The integer id is what locked_by holds: a name there would widen the row and spoil HOT.
CREATE TABLE @schema@.queue_message_relay (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    version text NOT NULL,
    host text NOT NULL,
    pid int NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    -- Nothing below this position is in the relay's hands, nor will it claim there without lowering it first.
    low_xid xid8 NOT NULL DEFAULT '0',
    low_seq bigint NOT NULL DEFAULT 0,
    -- The lowest head of its streams: what is claimable below every head is stranded.
    head_xid xid8 NOT NULL DEFAULT '0',
    head_seq bigint NOT NULL DEFAULT 0,
    -- The highest head: where a stream is held, far above the lowest.
    top_xid xid8 NOT NULL DEFAULT '0',
    top_seq bigint NOT NULL DEFAULT 0,
    -- What `relay status` shows of it: broker, LISTEN, in flight, silent exchanges.
    state jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- One owner per lane, with a lease and an epoch that fences a former owner.
CREATE TABLE @schema@.queue_message_lane (
    lane smallint PRIMARY KEY,
    owner int,
    epoch bigint NOT NULL DEFAULT 0,
    lease_expires_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
INSERT INTO @schema@.queue_message_lane (lane) SELECT generate_series(0, 63);

-- Policy that the database itself carries out; seeded by `relay migrate`, changed by `relay config set` or SQL.
CREATE TABLE @schema@.queue_message_setting (
    name text PRIMARY KEY,
    value text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);
