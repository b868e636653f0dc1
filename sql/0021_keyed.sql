-- Messages that are taken back before anybody claimed them.

-- Takes a message that nobody has claimed out of the queue, archived with a result that no broker gave; false where it is not there or is
-- claimed. Its lock is waited for if patient. Where it turns out to be claimed the row is let go at once, by undoing the block: an
-- application's transaction would hold up the settle of its whole batch. The next of its ordering key becomes due.
CREATE FUNCTION @schema@.queue_message_take_out(
    message uuid, result text, error_code text, error_detail text, handled_by text, patient boolean DEFAULT true) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
BEGIN
    IF patient THEN
        SELECT m.xid, m.seq, m.ordering_key, m.lock_expires_at, m.last_error INTO one
        FROM @schema@.queue_message m WHERE m.id = message FOR UPDATE;
    ELSE
        SELECT m.xid, m.seq, m.ordering_key, m.lock_expires_at, m.last_error INTO one
        FROM @schema@.queue_message m WHERE m.id = message FOR UPDATE SKIP LOCKED;
    END IF;
    IF one.seq IS NULL THEN
        RETURN false;
    ELSIF one.lock_expires_at IS NOT NULL THEN
        RAISE EXCEPTION 'Message % is claimed.', message USING ERRCODE = 'object_in_use';
    END IF;
    PERFORM @schema@.queue_message_archive_now(ARRAY[message], result, error_code, coalesce(error_detail, one.last_error), handled_by);
    IF one.ordering_key IS NOT NULL AND NOT EXISTS (
        SELECT FROM @schema@.queue_message m WHERE m.ordering_key = one.ordering_key AND (m.xid, m.seq) < (one.xid, one.seq)) THEN
        PERFORM @schema@.queue_message_wake_key(one.ordering_key);
    END IF;
    RETURN true;
EXCEPTION WHEN object_in_use THEN
    RETURN false;
END
$body$;

-- Takes back a message that nobody has claimed: archived as discarded, code cancelled, with who did it. True if it will not be sent any
-- more; false if it is claimed, settled or unknown. A lock that has expired still counts: what it held may be with the broker.
CREATE FUNCTION @schema@.queue_message_cancel(message uuid, by text DEFAULT session_user) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    RETURN @schema@.queue_message_take_out(message, 'discarded', 'cancelled', NULL, @schema@.queue_message_signed(by));
END
$body$;
