-- How far a primary has written its log.
SELECT pg_current_wal_insert_lsn()::text
