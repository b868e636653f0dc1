-- Whether GSSAPI encrypts this session.
SELECT encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_catalog.pg_backend_pid()
