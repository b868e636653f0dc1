-- Transactions that write in this database, prepared ones too: a relay remembers each that began before its head.
-- The age is null where the role may not see other sessions (pg_read_all_stats).
SELECT count(*) AS writing, count(*) FILTER (WHERE prepared) AS prepared, extract(epoch FROM now() - min(began))::float8 AS oldest_seconds
FROM (
    SELECT xact_start AS began, false AS prepared FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()
    UNION ALL
    SELECT prepared, true FROM pg_prepared_xacts WHERE database = current_database()
) AS transaction
