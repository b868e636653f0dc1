-- Has the server end a statement whose client is gone, which it otherwise carries out to the end. If the server cannot do this (PostgreSQL
-- on another system than Linux), nothing is lost.
DO $$ BEGIN
    PERFORM pg_catalog.set_config('client_connection_check_interval', '10s', false);
EXCEPTION WHEN invalid_parameter_value OR undefined_object THEN NULL;
END $$
