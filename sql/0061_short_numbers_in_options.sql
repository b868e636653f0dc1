-- A claim takes messages by the bytes that they have in the table, and prints them. A number such as 1e-16380 takes some bytes there and 16 kB as text:
-- 600 messages of one kilobyte each, with hundreds of such numbers in their headers, stopped all exchanges for a minute.

-- As in 0052, but the numbers in options may have 320 KiB as text, not 8 MiB: more than all doubles have that fit into headers, with 17 digits each.
-- Options of few bytes are looked at too.
CREATE OR REPLACE FUNCTION @schema@.queue_message_options_length_problem(options jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN CASE
        WHEN pg_catalog.pg_column_size(options) <= 4096 AND pg_catalog.pg_column_compression(options) IS NULL
            AND pg_catalog.octet_length(options::pg_catalog.text) <= 65536 THEN NULL
        WHEN (SELECT pg_catalog.sum(pg_catalog.octet_length(number::pg_catalog.text)) > 327680 FROM pg_catalog.jsonb_path_query(options,
                'strict $.** ? (@.type() == "number")'::pg_catalog.jsonpath) AS number)
            THEN 'options has numbers of more than 327680 bytes as text; write numbers of that many digits as strings' END;
END
$$;

-- As in 0052, but none that is long as text is common: a number may have thousands of digits, or zeros, in some bytes.
CREATE OR REPLACE FUNCTION @schema@.queue_message_options_common(options jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (options - '{app_id,content_encoding,content_type,correlation_id,message_id,reply_to,type,user_id,
                delivery_mode,expiration,headers,mandatory,persistent,priority,timestamp}'::pg_catalog.text[] = '{}'::pg_catalog.jsonb
            OR options - '{appId,contentEncoding,contentType,correlationId,messageId,replyTo,type,userId,
                deliveryMode,expiration,headers,mandatory,persistent,priority,timestamp}'::pg_catalog.text[] = '{}'::pg_catalog.jsonb)
        AND NOT pg_catalog.jsonb_path_exists(
            options - '{delivery_mode,deliveryMode,expiration,headers,mandatory,persistent,priority,timestamp}'::pg_catalog.text[],
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
        AND pg_catalog.octet_length(options::pg_catalog.text) <= 65536
$$;
