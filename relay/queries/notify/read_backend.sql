-- Differs from what the server said at login where there is a connection pool in between.
SELECT pg_catalog.pg_backend_pid() AS pid
