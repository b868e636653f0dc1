-- How many messages wait for another attempt, up to 10,000.
CREATE FUNCTION @schema@.queue_message_retries() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    SELECT count(*) FROM (
        SELECT m.lock_expires_at FROM @schema@.queue_message m
        WHERE m.last_error IS NOT NULL AND m.available_at > now() ORDER BY m.available_at LIMIT 10000) near
    WHERE near.lock_expires_at IS NULL
$body$;

-- As before, and delayed messages are scheduled for a time or wait for another attempt.
CREATE OR REPLACE VIEW @schema@.queue_message_status AS
    SELECT n.waiting, n.locked, n.delayed, greatest(n.waiting - n.locked - n.delayed, 0) AS ready, n.counted,
        greatest(extract(epoch FROM now() - CASE WHEN isfinite(o.since) THEN o.since END), 0)::double precision AS oldest_seconds,
        @schema@.queue_message_dead_open() AS dead_unacknowledged,
        (SELECT count(DISTINCT blocked.ordering_key) FROM (
            SELECT w.ordering_key FROM @schema@.queue_message_waiting_heads() AS w (ordering_key)
            UNION ALL (SELECT h.ordering_key FROM @schema@.queue_message_key_hold h LIMIT 10000)) AS blocked) AS blocked_keys,
        (SELECT count(*) FROM @schema@.queue_message_pause) AS paused_exchanges,
        (SELECT count(*) FROM @schema@.queue_message_limit) AS limited_exchanges,
        @schema@.queue_message_suspects() AS suspects,
        (SELECT count(*) FROM @schema@.queue_message_relay_state s WHERE s.alive) AS relays_alive,
        @schema@.queue_message_days_ahead() AS partition_days_ahead,
        pg_notification_queue_usage() AS notification_queue_usage,
        -- Of a registered export; of what it compared, only partitions that are still here.
        @schema@.queue_message_export_lag() AS export_lag_seconds,
        @schema@.queue_message_days_unverified() AS export_unverified_days,
        (SELECT count(*) FROM @schema@.queue_message_export e WHERE e.damage IS NOT NULL OR (e.difference IS NOT NULL
         AND to_regclass(format('%I.%I', @schema_literal@::text, e.partition)) IS NOT NULL)) AS export_differing_partitions,
        r.retrying, greatest(n.delayed - r.retrying, 0) AS scheduled
    FROM @schema@.queue_message_count() n, @schema@.queue_message_oldest() AS o (since), @schema@.queue_message_retries() AS r (retrying);

-- What this migration adds to the privileges.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_96;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_96() p
    UNION ALL SELECT kind, 'EXECUTE ON FUNCTION %1$I.queue_message_retries'
    FROM unnest(ARRAY['queue_message_relay', 'queue_message_operator', 'queue_message_etl']) AS kind
$body$;
