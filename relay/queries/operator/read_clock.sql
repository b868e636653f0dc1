-- The database's clock, in seconds since 1970, as text: a connection may be configured to read times otherwise.
SELECT extract(epoch FROM statement_timestamp())::text
