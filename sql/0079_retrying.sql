-- Why messages wait for another attempt, by code and exchange, the most first. Of the messages that are due next it reads 10,000, so an
-- operator's question costs the same however many messages are scheduled.
CREATE FUNCTION @schema@.queue_message_retrying() RETURNS TABLE (error_code text, exchange text, messages bigint, next_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    SELECT split_part(m.last_error, ':', 1), m.exchange, count(*), min(m.available_at)
    FROM (
        SELECT n.last_error, n.exchange, n.available_at, n.lock_expires_at FROM @schema@.queue_message n
        WHERE n.available_at > now() AND n.available_at < 'infinity' ORDER BY n.available_at LIMIT 10000) m
    WHERE m.last_error IS NOT NULL AND m.lock_expires_at IS NULL
    GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2
$body$;

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_79;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_79() p
    UNION ALL VALUES ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_retrying')
$body$;
