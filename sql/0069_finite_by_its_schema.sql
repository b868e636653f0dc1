-- As before, with isfinite named by its schema: since 0067 constraints call this with the path of who writes.
CREATE OR REPLACE FUNCTION @schema@.queue_message_check_time(column_name text, value timestamptz) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN value >= '0001-01-01 00:00:00+00' AND value < '10000-01-01 00:00:00+00' OR @schema@.queue_message_refuse(column_name,
        column_name || CASE WHEN pg_catalog.isfinite(value) THEN ' is' ELSE ' is infinite,' END || ' outside the years 1 to 9999');
END
$$;
