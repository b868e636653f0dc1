-- The state of the queue as one object, for metrics, with the age of the oldest transaction that keeps vacuum off: one that writes, reads
-- on, or is prepared. An ANALYZE of autovacuum counts too: it runs functions of the table's owner, for as long as these take. The age is 0
-- if there is no such transaction. It is null if the role may not see how old those of others are (pg_read_all_stats), since the age of the
-- visible ones says nothing. The clock is the database's; the relay compares its own with it. Of the messages that wait under a key at most
-- 100,000 are counted.
SELECT to_jsonb(status) || to_jsonb(overdue) || jsonb_build_object('clock', extract(epoch FROM clock_timestamp())::float8,
    'keyed', (SELECT count(*) FROM (SELECT FROM @schema@.queue_message_keyed_row LIMIT 100000) AS first),
    'schedules_failing', (SELECT count(*) FROM @schema@.queue_message_schedule_failing), 'oldest_transaction_seconds', (
    SELECT CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN coalesce(max(extract(epoch FROM now() - began)), 0) END::float8
    FROM (
        SELECT xact_start AS began FROM pg_stat_activity
        WHERE (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) AND datname = current_database() AND pid <> pg_backend_pid()
            AND (backend_type IS DISTINCT FROM 'autovacuum worker' OR pid IN (SELECT pid FROM pg_stat_progress_analyze))
        UNION ALL
        SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()
    ) AS transaction
))
FROM @schema@.queue_message_status AS status, @schema@.queue_message_overdue AS overdue
