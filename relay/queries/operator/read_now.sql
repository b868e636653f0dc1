-- The database's now.
SELECT now() AS now
