-- Headers hold at most 8,000 values: a list of lists takes the relay, and PostgreSQL, as long as its values are many, however few bytes they are.
-- They are counted by one walk first. jsonb_path_query moves all that is left with each value that it returns: 127,000 nulls took 2.7 s.

CREATE OR REPLACE FUNCTION @schema@.queue_message_headers_problem(headers jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
DECLARE
    wrong_name pg_catalog.text;
    wrong_number boolean;
    size bigint;
BEGIN
    IF headers ? 'x-stream-filter-value' AND NOT @schema@.queue_message_is_text(headers -> 'x-stream-filter-value') THEN
        RETURN 'options.headers.x-stream-filter-value must be a string of at most 255 bytes';
    END IF;
    IF pg_catalog.jsonb_path_exists(headers, 'strict $.**{65 to last}'::pg_catalog.jsonpath) THEN
        RETURN 'options.headers is nested deeper than 64 levels';
    END IF;
    IF jsonb_array_length(pg_catalog.jsonb_path_query_array(headers, 'strict $.**{1 to last}.type()'::pg_catalog.jsonpath)) > 8000 THEN
        RETURN 'options.headers holds more than 8000 values, CC and BCC included';
    END IF;
    SELECT min(name) FILTER (WHERE octet_length(name) NOT BETWEEN 1 AND 128), bool_or(NOT @schema@.queue_message_is_sendable_number(field)),
        sum(coalesce(1 + octet_length(name), CASE jsonb_typeof(field) WHEN 'null' THEN 1 WHEN 'boolean' THEN 2 WHEN 'number' THEN 9
            WHEN 'string' THEN 5 + octet_length(field #>> '{}') ELSE 5 END)) - 5
        INTO wrong_name, wrong_number, size
        FROM pg_catalog.jsonb_path_query(headers, 'strict $.**'::pg_catalog.jsonpath) AS field, LATERAL (
            SELECT NULL AS name UNION ALL SELECT jsonb_object_keys(CASE jsonb_typeof(field) WHEN 'object' THEN field ELSE '{}' END)) AS names;
    RETURN CASE
        WHEN wrong_name IS NOT NULL THEN
            'options.headers has a name that is empty or longer than 128 bytes: ' || @schema@.queue_message_printable(wrong_name)
        WHEN wrong_number THEN 'options.headers holds a number that fits neither a 64-bit integer nor a double; send it as a string'
        -- The default frame of 131,072 bytes, less what all other properties can take.
        WHEN size > 128000 THEN 'options.headers takes ' || size || ' bytes on the wire, CC and BCC included; the limit is 128000 bytes'
    END;
END
$$;
