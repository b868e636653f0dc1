-- Sets each of these settings to the end of the session.
SELECT pg_catalog.set_config(given.name, given.value, false) FROM unnest(%(names)s::text[], %(values)s::text[]) AS given (name, value)
