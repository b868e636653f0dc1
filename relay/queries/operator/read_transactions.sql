-- Transactions that write in this database, prepared ones too: a relay remembers each that began before its head. `open_seconds` is the age
-- of the oldest transaction that keeps vacuum off, even if it only reads. An age is null if one of the transactions is hidden, as those of
-- others are from a role without pg_read_all_stats; `hidden` counts them.
SELECT count(*) FILTER (WHERE writes) AS writing, count(*) FILTER (WHERE prepared) AS prepared,
    count(*) FILTER (WHERE began IS NULL) AS hidden,
    CASE WHEN bool_and(began IS NOT NULL) FILTER (WHERE writes)
        THEN extract(epoch FROM now() - min(began) FILTER (WHERE writes)) END::float8 AS oldest_seconds,
    CASE WHEN bool_and(began IS NOT NULL) THEN extract(epoch FROM now() - min(began)) END::float8 AS open_seconds
FROM (
    SELECT xact_start AS began, backend_xid IS NOT NULL AS writes, false AS prepared FROM pg_stat_activity
    WHERE (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) AND datname = current_database() AND pid <> pg_backend_pid()
        AND (backend_type IS DISTINCT FROM 'autovacuum worker' OR pid IN (SELECT pid FROM pg_stat_progress_analyze))
    UNION ALL
    SELECT prepared, true, true FROM pg_prepared_xacts WHERE database = current_database()
) AS transaction
