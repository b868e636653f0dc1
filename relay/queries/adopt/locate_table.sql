-- Which table a name means, by the search path of the session. For a text that is no name, to_regclass() returns NULL from PostgreSQL 16
-- on, and fails before; parse_ident() fails in every version. Other functions on that path may fit better, so all have a schema.
SELECT pg_catalog.to_regclass(%(name)s::pg_catalog.text)::pg_catalog.oid::pg_catalog.int8 AS oid,
    pg_catalog.cardinality(pg_catalog.parse_ident(%(name)s::pg_catalog.text)) AS parts
