-- Sets where names without a schema are looked for from here on. Behind a pooler, which gives its own number for the process at login
-- (libpq, PQbackendPID), there is no row and no change. In transaction mode it would hand the path on to an application, which would then
-- not find its own tables. Until the path is set the login's own holds, so even the operator `=` has its schema.
SELECT pg_catalog.set_config('search_path', %(path)s, false) WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %(backend)s::pg_catalog.int4
