-- Differs from what the server said at login where a connection pool stands between.
SELECT pg_catalog.pg_backend_pid() AS pid
