-- Where names without a schema are looked for from here on. No row and no change where there is a pooler in between, which gives its own
-- number for the process at login (libpq, PQbackendPID). In transaction mode it would hand the path on to an application, which finds no
-- table of its own then. The login's path holds until then, so even the operator has its schema.
SELECT pg_catalog.set_config('search_path', %(path)s, false) WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %(backend)s::pg_catalog.int4
