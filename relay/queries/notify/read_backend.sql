-- The session's process id; with a connection pool in between it differs from the one that the server said at login.
SELECT pg_catalog.pg_backend_pid() AS pid
