-- The database's now, moved by a length of time.
SELECT now() + %(length)s::interval AS moment
