-- The table of github.com/efureev/go-outbox as its migrations 0001 to 0004 leave it, restated from commit c9a356e of August 2026 (after v1.7.1,
-- MIT licence), with its default names. Its trigger notifies its dispatcher.
CREATE SCHEMA outbox;
CREATE TABLE outbox.messages (
    id uuid PRIMARY KEY,
    stream text NOT NULL,
    topic text NOT NULL,
    payload bytea NOT NULL,
    headers jsonb NOT NULL DEFAULT '{}',
    target jsonb NOT NULL DEFAULT '{}',
    status smallint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    available_at timestamptz NOT NULL DEFAULT now(),
    lease_token uuid,
    lease_until timestamptz,
    owner text,
    last_error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    dispatched_at timestamptz,
    deferred_since timestamptz,
    CONSTRAINT messages_status_check CHECK (status BETWEEN 0 AND 3),
    CONSTRAINT messages_attempts_check CHECK (attempts >= 0),
    CONSTRAINT messages_lease_check CHECK ((status = 1) = (lease_token IS NOT NULL) AND (lease_token IS NULL) = (lease_until IS NULL))
);
CREATE INDEX messages_claim_idx ON outbox.messages (stream, available_at, id) WHERE status = 0;
CREATE INDEX messages_pending_age_idx ON outbox.messages (created_at) WHERE status = 0;
CREATE INDEX messages_lease_idx ON outbox.messages (lease_until) WHERE status = 1;
CREATE INDEX messages_dispatched_idx ON outbox.messages (dispatched_at) WHERE status = 2;
CREATE INDEX messages_failed_idx ON outbox.messages (created_at, id) WHERE status = 3;
CREATE INDEX messages_deferred_idx ON outbox.messages (deferred_since) WHERE deferred_since IS NOT NULL;
CREATE FUNCTION outbox.notify_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('outbox_new', NEW.stream);
    RETURN NULL;
END
$$;
CREATE TRIGGER messages_notify_trg AFTER INSERT ON outbox.messages FOR EACH ROW EXECUTE FUNCTION outbox.notify_new();
