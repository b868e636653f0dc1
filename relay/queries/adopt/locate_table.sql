-- Which table a name means, by the search path of the session.
SELECT to_regclass(%(name)s)::oid::bigint AS oid
