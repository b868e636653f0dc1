-- The claimable messages in a narrow table beside the queue: a trigger adds a row at each INSERT and at each release, a claim deletes it.
CREATE TABLE ready (
    due_at timestamptz NOT NULL,
    xid xid8 NOT NULL,
    seq bigint NOT NULL,
    exchange text NOT NULL,
    PRIMARY KEY (due_at, xid, seq)
) WITH (vacuum_truncate = off);
DROP INDEX queue_message_available_at_idx;

CREATE FUNCTION ready_add() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ready (due_at, xid, seq, exchange) VALUES (coalesce(NEW.available_at, NEW.created_at), NEW.xid, NEW.seq, NEW.exchange);
    RETURN NULL;
END
$$;
CREATE TRIGGER ready_inserted AFTER INSERT ON queue_message
    FOR EACH ROW WHEN (NEW.ordering_key IS NULL) EXECUTE FUNCTION ready_add();
CREATE TRIGGER ready_released AFTER UPDATE OF lock_expires_at ON queue_message
    FOR EACH ROW WHEN (OLD.lock_expires_at IS NOT NULL AND NEW.lock_expires_at IS NULL AND NEW.ordering_key IS NULL) EXECUTE FUNCTION ready_add();
