-- Legal moves only: ready -> locked -> ready | archived. That a new message is ready is judged by queue_message_check(), with its values.
-- A CHECK cannot see the old row, so triggers say no, and only they:
-- their WHEN is true for an illegal move alone, so a legal one calls no function. AFTER, because a BEFORE trigger locks each row once more.

CREATE FUNCTION @schema@.queue_message_refuse_move() RETURNS trigger LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
BEGIN
    RAISE EXCEPTION 'Message %: %', NEW.id, TG_ARGV[0] USING ERRCODE = 'check_violation', TABLE = 'queue_message', CONSTRAINT = TG_NAME;
END
$body$;

-- UPDATE OF: a claim does not name these columns, so contents are never compared on its way.
CREATE TRIGGER queue_message_unchanged AFTER UPDATE OF xid, seq, id, exchange, routing_key, content, body, options, ordering_key, created_at, replay_of
    ON @schema@.queue_message
    FOR EACH ROW WHEN ((OLD.xid, OLD.seq, OLD.id, OLD.exchange, OLD.routing_key, OLD.content, OLD.body, OLD.options, OLD.ordering_key,
                        OLD.created_at, OLD.replay_of)
        IS DISTINCT FROM (NEW.xid, NEW.seq, NEW.id, NEW.exchange, NEW.routing_key, NEW.content, NEW.body, NEW.options, NEW.ordering_key,
                        NEW.created_at, NEW.replay_of))
    EXECUTE FUNCTION @schema@.queue_message_refuse_move(
        'a queued message does not change; delete it and insert another (only available_at and expires_at may move).');

-- The same token is a renewal. Locks set by hand have none: for them lock_expires_at alone counts.
CREATE TRIGGER queue_message_lock_held AFTER UPDATE OF lock_expires_at, lock_token ON @schema@.queue_message
    FOR EACH ROW WHEN (OLD.lock_expires_at > now() AND NEW.lock_expires_at IS NOT NULL AND NEW.lock_token IS DISTINCT FROM OLD.lock_token)
    EXECUTE FUNCTION @schema@.queue_message_refuse_move('it is locked; wait until lock_expires_at has passed, or release it first.');

CREATE TRIGGER queue_message_lock_whole AFTER UPDATE OF lock_expires_at, lock_token ON @schema@.queue_message
    FOR EACH ROW WHEN (NEW.lock_token IS NOT NULL AND NEW.lock_expires_at IS NULL)
    EXECUTE FUNCTION @schema@.queue_message_refuse_move('a lock without an end is none; set lock_expires_at and lock_token to NULL together.');

CREATE TRIGGER queue_message_attempts AFTER UPDATE OF attempts ON @schema@.queue_message
    FOR EACH ROW WHEN (NEW.attempts NOT BETWEEN OLD.attempts - 1 AND OLD.attempts + 1 OR NEW.attempts < 0)
    EXECUTE FUNCTION @schema@.queue_message_refuse_move('attempts move by one: a claim adds it, giving a claim back takes it away.');
