-- What can never be sent is refused by the INSERT, inside the application's own transaction, with a sentence that names column and limit.
-- One trigger judges a new message. A CHECK is read from the catalogue and planned again by each statement, every INSERT and every claim:
-- nine of them cost a one-row INSERT 40 microseconds, one PL/pgSQL trigger, which keeps its plans, four. Options: the rules and the
-- sentences are those of relay/option_rules.py and relay/options.py; docs/options.md is the table for people. Everything is
-- schema-qualified, so that a dump restores with any search_path.

-- An error that carries the sentence, and names column and constraint for programs.
CREATE FUNCTION @schema@.queue_message_refuse(column_name text, sentence text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = sentence, TABLE = 'queue_message', COLUMN = column_name,
        CONSTRAINT = 'queue_message_' || column_name || '_check',
        HINT = 'The columns, the options and their limits are listed in docs/options.md.';
END
$$;

CREATE FUNCTION @schema@.queue_message_check_size(column_name text, size bigint, size_limit bigint) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN size <= size_limit OR @schema@.queue_message_refuse(column_name,
        column_name || ' is ' || size || ' bytes long; the limit is ' || size_limit || ' bytes');
END
$$;

CREATE FUNCTION @schema@.queue_message_refuse_new(id uuid, what text, sentence text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RAISE EXCEPTION 'Message %: %', id, sentence USING ERRCODE = 'check_violation', TABLE = 'queue_message',
        CONSTRAINT = 'queue_message_insert_' || what;
END
$$;

CREATE FUNCTION @schema@.queue_message_check_time(column_name text, value timestamptz) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN value >= '0001-01-01 00:00:00+00' AND value < '10000-01-01 00:00:00+00' OR @schema@.queue_message_refuse(column_name,
        column_name || CASE WHEN isfinite(value) THEN ' is' ELSE ' is infinite,' END || ' outside the years 1 to 9999');
END
$$;

-- One publish option: every spelling to its snake-case name; NULL for one that does not exist.
CREATE FUNCTION @schema@.queue_message_option_name(spelling text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT '{"appId": "app_id", "BCC": "bcc", "CC": "cc", "contentEncoding": "content_encoding", "contentType": "content_type",
        "correlationId": "correlation_id", "deliveryMode": "delivery_mode", "expiration": "expiration", "headers": "headers",
        "immediate": "immediate", "mandatory": "mandatory", "messageId": "message_id", "persistent": "persistent",
        "priority": "priority", "replyTo": "reply_to", "timestamp": "timestamp", "type": "type", "userId": "user_id",
        "app_id": "app_id", "bcc": "bcc", "cc": "cc", "content_encoding": "content_encoding", "content_type": "content_type",
        "correlation_id": "correlation_id", "delivery_mode": "delivery_mode", "message_id": "message_id",
        "reply_to": "reply_to", "user_id": "user_id"}'::jsonb ->> spelling
$$;

-- Foreign text in a sentence: short, and without control characters.
CREATE FUNCTION @schema@.queue_message_printable(foreign_text text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT '"' || regexp_replace(left(foreign_text, 64), '[^ -~]', '?', 'g') || '"'
$$;

CREATE FUNCTION @schema@.queue_message_is_text(value jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT jsonb_typeof(value) = 'string' AND octet_length(value #>> '{}') <= 255
$$;

CREATE FUNCTION @schema@.queue_message_is_whole(value jsonb, low numeric, high numeric) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_typeof(value) = 'number'
        THEN (value #>> '{}')::numeric BETWEEN low AND high AND (value #>> '{}')::numeric = trunc((value #>> '{}')::numeric) ELSE false END
$$;

CREATE FUNCTION @schema@.queue_message_is_key_list(value jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    IF jsonb_typeof(value) <> 'array' THEN
        RETURN false;
    END IF;
    RETURN NOT EXISTS (SELECT FROM jsonb_array_elements(value) AS item (key) WHERE NOT @schema@.queue_message_is_text(item.key));
END
$$;

-- Integers must fit 64 bits, fractions a double.
CREATE FUNCTION @schema@.queue_message_is_sendable_number(value jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_typeof(value) <> 'number' THEN true
        WHEN scale((value #>> '{}')::numeric) = 0 THEN (value #>> '{}')::numeric BETWEEN -9223372036854775808 AND 9223372036854775807
        ELSE abs((value #>> '{}')::numeric) < 1.797693134862315807e308 END
$$;

-- What a value of an option must be, where it is not; NULL if it is.
CREATE FUNCTION @schema@.queue_message_option_problem(name text, value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN name IN ('app_id', 'content_encoding', 'content_type', 'correlation_id', 'message_id', 'type', 'user_id') THEN
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
        WHEN name = 'timestamp' THEN
            CASE WHEN NOT @schema@.queue_message_is_whole(value, 0, 253402300799)
                THEN 'be whole seconds since 1970, from 0 to 253402300799' END
    END
$$;

-- The first thing that keeps a headers table from being sent; NULL if nothing does. Bytes are those on the wire: the names in
-- an object, and for each value its tag and what it holds.
CREATE FUNCTION @schema@.queue_message_headers_problem(headers jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
DECLARE
    wrong_name text;
    wrong_number boolean;
    size bigint;
BEGIN
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

-- Headers as they will be sent: the relay's own left out, the option CC or BCC put where RabbitMQ reads it.
CREATE FUNCTION @schema@.queue_message_select(headers jsonb, name text, keys jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT headers - '{x-relay-id,x-relay-replay-of}'::text[] || CASE WHEN keys IS NULL THEN '{}'::jsonb
        ELSE jsonb_build_object(name, CASE jsonb_typeof(keys) WHEN 'array' THEN keys ELSE jsonb_build_array(keys) END) END
$$;

CREATE FUNCTION @schema@.queue_message_routing_problem(headers jsonb, name text, keys jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN NOT @schema@.queue_message_is_key_list(headers -> name) THEN
            'options.headers.' || name || ' must be a list of strings, each of at most 255 bytes'
        WHEN headers -> name <> @schema@.queue_message_select('{}', name, keys) -> name THEN
            'options.' || name || ' and options.headers.' || name || ' differ; give one of them' END
$$;

-- Whether these options, of at most 8 kB, are of the common kind, which can be sent: one spelling, short strings, headers that hold no table
-- or list. False says nothing. This short look is in C, where the rules one by one take ten times as long. In strict mode a member that is
-- not there is unknown, which is not true, and no list is taken for what it holds; whatever is compared has its type asked for first, since
-- an error is unknown too. Schema and types are named, because it runs with the path of who inserts. The caller asks for the size: that is
-- STABLE, and would keep this immutable function from being inlined.
CREATE FUNCTION @schema@.queue_message_options_common(options jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (options - '{app_id,content_encoding,content_type,correlation_id,message_id,reply_to,type,user_id,
                delivery_mode,expiration,headers,mandatory,persistent,priority,timestamp}'::text[] = '{}'::jsonb
            OR options - '{appId,contentEncoding,contentType,correlationId,messageId,replyTo,type,userId,
                deliveryMode,expiration,headers,mandatory,persistent,priority,timestamp}'::text[] = '{}'::jsonb)
        AND NOT pg_catalog.jsonb_path_exists(
            options - '{delivery_mode,deliveryMode,expiration,headers,mandatory,persistent,priority,timestamp}'::text[],
            'strict $.* ? (@.type() != "string" || @ == "amq.rabbitmq.reply-to"
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
            || @.headers.type() != "object" || exists (@.headers.CC) || exists (@.headers.BCC)
            || exists (@.headers.keyvalue() ? (!(@.key like_regex "^.{1,32}$" flag "s")))
            || exists (@.headers.* ? (@.type() == "object" || @.type() == "array"
                || @.type() == "number" && (@ < -9000000000000000 || @ > 9000000000000000))))'::pg_catalog.jsonpath)
$$;

-- The sentence that says why these options can never be sent; NULL if they can.
CREATE FUNCTION @schema@.queue_message_options_error(options jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
DECLARE
    spelling text;
    name text;
    value jsonb;
    problem text;
    headers jsonb;
    cc jsonb;
    bcc jsonb;
BEGIN
    -- Before anything else is set up: for most options this is all.
    IF jsonb_typeof(options) = 'object' AND pg_catalog.pg_column_size(options) <= 8192
        AND pg_catalog.pg_column_compression(options) IS NULL AND @schema@.queue_message_options_common(options)
    THEN
        RETURN NULL;
    ELSIF jsonb_typeof(options) <> 'object' THEN
        RETURN 'options must be a JSON object';
    END IF;
    headers := coalesce(nullif(options -> 'headers', 'null'), '{}');
    cc := coalesce(nullif(options -> 'CC', 'null'), nullif(options -> 'cc', 'null'));
    bcc := coalesce(nullif(options -> 'BCC', 'null'), nullif(options -> 'bcc', 'null'));
    FOR spelling, value IN SELECT each.key, each.value FROM jsonb_each(options) AS each LOOP
        name := @schema@.queue_message_option_name(spelling);
        IF name IS NULL THEN
            RETURN 'options has the unknown option ' || @schema@.queue_message_printable(spelling) || '; known are appId, BCC, CC, '
                'contentEncoding, contentType, correlationId, deliveryMode, expiration, headers, immediate, mandatory, messageId, '
                'persistent, priority, replyTo, timestamp, type, userId, also in snake_case';
        END IF;
        CONTINUE WHEN value = 'null';
        problem := @schema@.queue_message_option_problem(name, value);
        IF problem IS NOT NULL THEN
            RETURN 'options.' || spelling || ' must ' || problem;
        ELSIF spelling <> name AND options -> name <> 'null' AND options -> name <> value THEN
            RETURN 'options.' || name || ' and options.' || spelling || ' differ; give one of them';
        END IF;
    END LOOP;
    IF headers = '{}' AND cc IS NULL AND bcc IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN coalesce(@schema@.queue_message_routing_problem(headers, 'CC', cc), @schema@.queue_message_routing_problem(headers, 'BCC', bcc),
        @schema@.queue_message_headers_problem(@schema@.queue_message_select(@schema@.queue_message_select(headers, 'CC', cc), 'BCC', bcc)));
END
$$;

-- Up to 32 members key=value in 512 bytes, no key twice. Lengths are counted rather than repeated in the expression, which would be large.
CREATE FUNCTION @schema@.queue_message_is_tracestate(tracestate text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
#variable_conflict use_variable
DECLARE
    member text;
    keys text[];
BEGIN
    IF tracestate IS NULL OR octet_length(tracestate) > 512 THEN
        RETURN false;
    END IF;
    FOREACH member IN ARRAY string_to_array(tracestate, ','::text) LOOP
        member := btrim(member, E' \t'::text);
        CONTINUE WHEN member = ''::text;
        IF member !~ '^[a-z0-9][a-z0-9_*/-]*(@[a-z][a-z0-9_*/-]*)?=[ -+.-<>-~-]*[!-+.-<>-~-]$'::text OR strpos(member, '='::text) > 257
            OR octet_length(member) - strpos(member, '='::text) > 256 OR split_part(member, '='::text, 1) = ANY (keys)
        THEN
            RETURN false;
        END IF;
        keys := keys || split_part(member, '='::text, 1);
    END LOOP;
    RETURN cardinality(keys) <= 32;
END
$$;

-- The options with a W3C trace context among their headers, as relay/trace.py has it: version, trace, span and flags in hexadecimal. NULL
-- where it is not of that shape, where the application has put a trace there itself, and where the options could not be sent with it: a
-- trace breaks no business transaction. A state that is not well formed is left out.
CREATE FUNCTION @schema@.queue_message_traced(options jsonb, traceparent text, tracestate text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
#variable_conflict use_variable
DECLARE
    headers jsonb;
BEGIN
    IF traceparent !~ '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$'::text
        OR jsonb_typeof(options) <> 'object'::text
    THEN
        RETURN NULL;
    END IF;
    headers := coalesce(nullif(options -> 'headers'::text, 'null'::jsonb), '{}'::jsonb);
    IF jsonb_typeof(headers) <> 'object'::text OR headers ?| '{traceparent,tracestate}'::text[] THEN
        RETURN NULL;
    END IF;
    headers := headers || jsonb_build_object('traceparent'::text, traceparent);
    IF tracestate <> ''::text AND @schema@.queue_message_is_tracestate(tracestate) THEN
        headers := headers || jsonb_build_object('tracestate'::text, tracestate);
    END IF;
    options := options || jsonb_build_object('headers'::text, headers);
    RETURN CASE WHEN @schema@.queue_message_options_error(options) IS NULL THEN options END;
END
$$;

-- Judges a new message, and one whose columns an UPDATE names. The first expression is all that most good messages pay: each expression is
-- set up once a transaction, and each function in it costs a third of a microsecond, so it asks for little and lets through what needs no
-- closer look. A setting is null until it is first set in a session, and empty after the transaction that set it: a session that carries
-- traces pays the closer look. The second is exact, and true where something is wrong, so that NULL passes, on to NOT NULL.
-- content is measured as it will be printed: a number such as 1e131071 takes 16 bytes and is 131,072 bytes long, and a relay that claims
-- some hundreds of those is still for all others (docs/decisions/0021). pg_column_size is that of a compressed value where it comes from a
-- table, so whoever is beyond by that is measured again. More than a gigabyte cannot be printed, and PostgreSQL says so in the words of a
-- server without memory. A number is at most 147,456 digits in 14 bytes, so only what takes more than 64 KiB, or may once it is
-- decompressed, can be that long: it alone is printed where the error is caught, which costs a subtransaction.
-- The bounds of attempts leave room for every later claim: what fails there stops the relay, not the application.
CREATE FUNCTION @schema@.queue_message_check() RETURNS trigger LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    problem text;
    printed bigint;
    plain bigint;
    traced jsonb;
BEGIN
    IF (octet_length(NEW.exchange || NEW.routing_key || coalesce(NEW.ordering_key, '')) > 255
        OR NEW.body IS NOT NULL OR NEW.available_at IS NOT NULL OR NEW.expires_at IS NOT NULL OR NEW.created_at <> now()
        OR pg_catalog.pg_column_compression(NEW.content) IS NOT NULL OR pg_catalog.pg_column_size(NEW.content) > 65536
        OR octet_length(NEW.content::text) > 65536
        OR NEW.xid <> pg_current_xact_id() OR NEW.attempts <> 0 OR NEW.lock_expires_at IS NOT NULL OR NEW.lock_token IS NOT NULL
        OR NEW.locked_by IS NOT NULL OR NEW.last_error IS NOT NULL OR pg_catalog.current_setting('relay.traceparent', true) IS NOT NULL
        -- The last, so that what needs the closer look has its options judged there alone.
        OR NEW.options <> '{}' AND @schema@.queue_message_options_error(NEW.options) IS NOT NULL) IS FALSE
    THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'INSERT' AND pg_catalog.current_setting('relay.traceparent', true) <> '' THEN
        traced := @schema@.queue_message_traced(NEW.options, pg_catalog.current_setting('relay.traceparent', true),
            pg_catalog.current_setting('relay.tracestate', true));
        NEW.options := coalesce(traced, NEW.options);
    END IF;
    IF NEW.options <> '{}' AND traced IS NULL AND @schema@.queue_message_options_error(NEW.options) IS NOT NULL
        OR octet_length(NEW.exchange) > 255 OR octet_length(NEW.routing_key) > 255 OR octet_length(NEW.ordering_key) > 1024
        OR NEW.body IS NOT NULL AND (octet_length(NEW.body) > 134217728 OR NEW.content <> '{}')
        OR (CASE WHEN pg_catalog.pg_column_size(NEW.content) > 65536 OR pg_catalog.pg_column_compression(NEW.content) IS NOT NULL THEN true
            ELSE octet_length(NEW.content::text) > greatest(65536, 32::bigint * pg_catalog.pg_column_size(NEW.content)) END)
        OR least(NEW.available_at, NEW.expires_at, NEW.created_at, NEW.lock_expires_at) < '0001-01-01 00:00:00+00'
        OR greatest(NEW.available_at, NEW.expires_at, NEW.created_at, NEW.lock_expires_at) >= '10000-01-01 00:00:00+00'
        OR NEW.attempts NOT BETWEEN 0 AND 2000000000
        OR (NEW.xid <> pg_current_xact_id() OR NEW.attempts <> 0 OR NEW.lock_expires_at IS NOT NULL OR NEW.lock_token IS NOT NULL
            OR NEW.locked_by IS NOT NULL OR NEW.last_error IS NOT NULL OR NEW.expires_at <= NEW.available_at) AND TG_OP = 'INSERT'
    THEN
        problem := @schema@.queue_message_options_error(NEW.options);
        IF problem IS NOT NULL THEN
            PERFORM @schema@.queue_message_refuse('options', problem);
        END IF;
        BEGIN
            printed := octet_length(NEW.content::text);
        EXCEPTION WHEN program_limit_exceeded THEN
            PERFORM @schema@.queue_message_refuse('content', 'content is longer than a gigabyte as text; the limit is 134217728 bytes');
        END;
        PERFORM @schema@.queue_message_check_size('content', printed, 134217728);
        IF printed > greatest(65536, 32::bigint * pg_column_size(NEW.content)) THEN
            plain := pg_column_size(NEW.content::text::jsonb);
            IF printed > 32 * plain THEN
                PERFORM @schema@.queue_message_refuse('content', 'content takes ' || plain || ' bytes and ' || printed
                    || ' as text, more than 32 times as many; write numbers of that many digits as strings');
            END IF;
        END IF;
        IF NEW.attempts NOT BETWEEN 0 AND 2000000000 THEN
            PERFORM @schema@.queue_message_refuse('attempts', 'attempts is ' || NEW.attempts || '; it must be between 0 and 2000000000');
        END IF;
        PERFORM @schema@.queue_message_check_time('available_at', NEW.available_at);
        PERFORM @schema@.queue_message_check_size('body', octet_length(NEW.body), 134217728);
        IF NEW.body IS NOT NULL AND NEW.content <> '{}' THEN
            PERFORM @schema@.queue_message_refuse('body',
                'body (' || octet_length(NEW.body) || ' bytes) and content are both given; leave content out, a message has one payload');
        END IF;
        PERFORM @schema@.queue_message_check_time('created_at', NEW.created_at);
        PERFORM @schema@.queue_message_check_size('exchange', octet_length(NEW.exchange), 255);
        PERFORM @schema@.queue_message_check_time('expires_at', NEW.expires_at);
        PERFORM @schema@.queue_message_check_time('lock_expires_at', NEW.lock_expires_at);
        PERFORM @schema@.queue_message_check_size('ordering_key', octet_length(NEW.ordering_key), 1024);
        PERFORM @schema@.queue_message_check_size('routing_key', octet_length(NEW.routing_key), 255);
        IF TG_OP <> 'INSERT' THEN
            RETURN NEW;
        ELSIF NEW.xid <> pg_current_xact_id() THEN
            -- A position below the heads of the relays would strand the message.
            PERFORM @schema@.queue_message_refuse_new(NEW.id, 'position', 'its place is given by the database; leave out xid and seq.');
        ELSIF NEW.attempts <> 0 OR num_nonnulls(NEW.lock_expires_at, NEW.lock_token, NEW.locked_by, NEW.last_error) > 0 THEN
            PERFORM @schema@.queue_message_refuse_new(NEW.id, 'ready', 'a new message is not locked and has no attempts; '
                'leave out lock_expires_at, lock_token, locked_by, attempts and last_error.');
        ELSIF NEW.expires_at <= NEW.available_at THEN
            PERFORM @schema@.queue_message_refuse('expires_at', 'expires_at is not after available_at; the message could never be sent');
        END IF;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER queue_message_check BEFORE INSERT ON @schema@.queue_message
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_check();

-- A claim names none of these columns. AFTER, because where there is a BEFORE trigger of UPDATE, every claim computes the generated lane
-- again.
CREATE TRIGGER queue_message_check_options AFTER UPDATE OF options ON @schema@.queue_message
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_check();
CREATE TRIGGER queue_message_check_rest AFTER UPDATE OF exchange, routing_key, content, body, ordering_key, created_at ON @schema@.queue_message
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_check();

-- A claim names some of these: the WHEN is true for what is refused alone, and never for a time that came in beside the triggers and stays,
-- which would fail every claim. Named to stand before the triggers that judge moves.
CREATE TRIGGER queue_message_allowed AFTER UPDATE OF available_at, expires_at, lock_expires_at, attempts ON @schema@.queue_message
    FOR EACH ROW WHEN ((NEW.available_at < '0001-01-01 00:00:00+00' OR NEW.available_at >= '10000-01-01 00:00:00+00')
                           AND NEW.available_at IS DISTINCT FROM OLD.available_at
                       OR (NEW.expires_at < '0001-01-01 00:00:00+00' OR NEW.expires_at >= '10000-01-01 00:00:00+00')
                           AND NEW.expires_at IS DISTINCT FROM OLD.expires_at
                       OR NEW.lock_expires_at < '0001-01-01 00:00:00+00' OR NEW.lock_expires_at >= '10000-01-01 00:00:00+00'
                       OR NEW.attempts NOT BETWEEN 0 AND 2000000000)
    EXECUTE FUNCTION @schema@.queue_message_check();
