-- Two options over which a stream of RabbitMQ closes the whole connection of the publisher, and so the messages of all others in flight: the
-- type amqp-1.0, which has the body read as encoded AMQP 1.0, and a filter value that is no short string. Else as in 0002.

-- What a value of an option must be, where it is not; NULL if it is.
CREATE OR REPLACE FUNCTION @schema@.queue_message_option_problem(name text, value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN name IN ('app_id', 'content_encoding', 'content_type', 'correlation_id', 'message_id', 'user_id') THEN
            CASE WHEN NOT @schema@.queue_message_is_text(value) THEN 'be a string of at most 255 bytes' END
        WHEN name IN ('bcc', 'cc') THEN
            CASE WHEN NOT (@schema@.queue_message_is_text(value) OR @schema@.queue_message_is_key_list(value))
                THEN 'be a string or a list of strings, each of at most 255 bytes' END
        WHEN name IN ('mandatory', 'persistent') THEN
            CASE WHEN jsonb_typeof(value) <> 'boolean' THEN 'be true or false' END
        WHEN name = 'delivery_mode' THEN
            CASE WHEN NOT (value IN ('true', '"2"') OR @schema@.queue_message_is_whole(value, 1, 2)) THEN 'be 1 (transient) or 2 (persistent)' END
        WHEN name = 'expiration' THEN
            CASE WHEN NOT CASE WHEN value #>> '{}' ~ '^[0-9]{1,20}$' THEN (value #>> '{}')::numeric <= 4294967295
                    ELSE @schema@.queue_message_is_whole(value, 0, 4294967295) END
                THEN 'be whole milliseconds from 0 to 4294967295, a number or a string of digits' END
        WHEN name = 'headers' THEN
            CASE WHEN jsonb_typeof(value) <> 'object' THEN 'be an object' END
        WHEN name = 'immediate' THEN
            CASE WHEN value <> 'false' THEN 'be false or left out: RabbitMQ does not implement it' END
        WHEN name = 'priority' THEN
            CASE WHEN NOT @schema@.queue_message_is_whole(value, 0, 255) THEN 'be a whole number from 0 to 255' END
        WHEN name = 'reply_to' THEN
            CASE WHEN value = '"amq.rabbitmq.reply-to"' OR NOT @schema@.queue_message_is_text(value)
                THEN 'be a string of at most 255 bytes, not amq.rabbitmq.reply-to: it needs a consumer on the same channel' END
        WHEN name = 'type' THEN
            CASE WHEN value = '"amqp-1.0"' OR NOT @schema@.queue_message_is_text(value)
                THEN 'be a string of at most 255 bytes, not amqp-1.0: RabbitMQ takes the body for encoded AMQP 1.0' END
        WHEN name = 'timestamp' THEN
            CASE WHEN NOT @schema@.queue_message_is_whole(value, 0, 253402300799)
                THEN 'be whole seconds since 1970, from 0 to 253402300799' END
    END
$$;

-- The first thing that keeps a headers table from being sent; NULL if nothing does.
CREATE OR REPLACE FUNCTION @schema@.queue_message_headers_problem(headers jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
DECLARE
    wrong_name text;
    wrong_number boolean;
    size bigint;
BEGIN
    IF headers ? 'x-stream-filter-value' AND NOT @schema@.queue_message_is_text(headers -> 'x-stream-filter-value') THEN
        RETURN 'options.headers.x-stream-filter-value must be a string of at most 255 bytes';
    END IF;
    IF pg_catalog.jsonb_path_exists(headers, 'strict $.**{65 to last}'::pg_catalog.jsonpath) THEN
        RETURN 'options.headers is nested deeper than 64 levels';
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

-- Whether these options are of the common kind, which can be sent; false says nothing.
CREATE OR REPLACE FUNCTION @schema@.queue_message_options_common(options jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (options - '{app_id,content_encoding,content_type,correlation_id,message_id,reply_to,type,user_id,
                delivery_mode,expiration,headers,mandatory,persistent,priority,timestamp}'::text[] = '{}'::jsonb
            OR options - '{appId,contentEncoding,contentType,correlationId,messageId,replyTo,type,userId,
                deliveryMode,expiration,headers,mandatory,persistent,priority,timestamp}'::text[] = '{}'::jsonb)
        AND NOT pg_catalog.jsonb_path_exists(
            options - '{delivery_mode,deliveryMode,expiration,headers,mandatory,persistent,priority,timestamp}'::text[],
            'strict $.* ? (@.type() != "string" || @ == "amq.rabbitmq.reply-to" || @ == "amqp-1.0"
                || !(@ like_regex "^.{0,63}$" flag "s"))'::pg_catalog.jsonpath)
        AND NOT pg_catalog.jsonb_path_exists(options, 'strict $ ? (
            @.delivery_mode.type() != "number" || @.delivery_mode != 1 && @.delivery_mode != 2
            || @.deliveryMode.type() != "number" || @.deliveryMode != 1 && @.deliveryMode != 2
            || (@.expiration.type() != "string" || !(@.expiration like_regex "^[0-9]{1,9}$"))
                && (@.expiration.type() != "number" || @.expiration < 0 || @.expiration > 4294967295
                    || @.expiration.floor() != @.expiration)
            || @.mandatory.type() != "boolean" || @.persistent.type() != "boolean"
            || @.priority.type() != "number" || @.priority < 0 || @.priority > 255 || @.priority.floor() != @.priority
            || @.timestamp.type() != "number" || @.timestamp < 0 || @.timestamp > 253402300799
            || @.timestamp.floor() != @.timestamp
            || @.headers.type() != "object" || exists (@.headers.CC) || exists (@.headers.BCC) || exists (@.headers."x-stream-filter-value")
            || exists (@.headers.keyvalue() ? (!(@.key like_regex "^.{1,32}$" flag "s")))
            || exists (@.headers.* ? (@.type() == "object" || @.type() == "array"
                || @.type() == "number" && (@ < -9000000000000000 || @ > 9000000000000000))))'::pg_catalog.jsonpath)
$$;
