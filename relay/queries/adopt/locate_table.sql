-- Which table a name means, by the search path of the session. From PostgreSQL 16 on to_regclass() is NULL also of what is no name;
-- before that it is an error, as it is of parse_ident() in every version.
SELECT to_regclass(%(name)s)::oid::bigint AS oid, cardinality(parse_ident(%(name)s)) AS parts
