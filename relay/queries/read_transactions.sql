-- Transactions that write in this database, prepared ones too: a relay remembers each that began before its head. `open_seconds` is the
-- age of the oldest that keeps vacuum off, also by reading on. Ages are null where the role may not see other sessions (pg_read_all_stats).
SELECT count(*) FILTER (WHERE writes) AS writing, count(*) FILTER (WHERE prepared) AS prepared,
    extract(epoch FROM now() - min(began) FILTER (WHERE writes))::float8 AS oldest_seconds,
    extract(epoch FROM now() - min(began))::float8 AS open_seconds
FROM (
    SELECT xact_start AS began, backend_xid IS NOT NULL AS writes, false AS prepared FROM pg_stat_activity
    WHERE (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) AND datname = current_database() AND pid <> pg_backend_pid()
        AND backend_type IS DISTINCT FROM 'autovacuum worker'
    UNION ALL
    SELECT prepared, true, true FROM pg_prepared_xacts WHERE database = current_database()
) AS transaction
