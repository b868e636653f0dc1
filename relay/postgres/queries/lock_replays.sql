-- Let one transaction at a time replay by id, so that the second one sees what the first has replayed.
SELECT pg_advisory_xact_lock(724017727, hashtext(%(schema)s))
