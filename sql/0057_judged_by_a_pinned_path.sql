-- Options are judged by PostgreSQL's own operators, whatever schemas are on the inserter's path. An operator of two jsonb, made by somebody else, fits
-- a literal better than PostgreSQL's own of jsonb and text does, and was called with the inserter's rights.

ALTER FUNCTION @schema@.queue_message_options_error(jsonb) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION @schema@.queue_message_untraced(jsonb) SET search_path = pg_catalog, pg_temp;
