-- What an adopted table is called now, and whether it is the one that has the name. The function that judges a row has a row of the table
-- as its argument: so it knows the table by any name, and is dropped with it.
SELECT t.typrelid::regclass::text AS name, t.typrelid = to_regclass(%(kept)s) AS here
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_type t ON t.oid = p.proargtypes[0]
WHERE n.nspname = %(schema)s AND p.proname = %(function)s
