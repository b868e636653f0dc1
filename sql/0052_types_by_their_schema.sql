-- As before, with types named by their schema: PostgreSQL looks for the name of a type in the inserter's temporary schema first, whatever the
-- search_path, and a domain there that is called text would take the type's place in what judges an INSERT.

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
CREATE OR REPLACE FUNCTION @schema@.queue_message_check() RETURNS trigger LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    problem pg_catalog.text;
    printed bigint;
    plain bigint;
    traced pg_catalog.jsonb;
BEGIN
    IF (octet_length(NEW.exchange || NEW.routing_key || coalesce(NEW.ordering_key, '')) > 255
        OR NEW.body IS NOT NULL OR NEW.available_at IS NOT NULL OR NEW.expires_at IS NOT NULL OR NEW.created_at <> now()
        OR pg_catalog.pg_column_compression(NEW.content) IS NOT NULL OR pg_catalog.pg_column_size(NEW.content) > 65536
        OR octet_length(NEW.content::pg_catalog.text) > 65536
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
            ELSE octet_length(NEW.content::pg_catalog.text) > greatest(65536, 32::bigint * pg_catalog.pg_column_size(NEW.content)) END)
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
            printed := octet_length(NEW.content::pg_catalog.text);
        EXCEPTION WHEN program_limit_exceeded THEN
            PERFORM @schema@.queue_message_refuse('content', 'content is longer than a gigabyte as text; the limit is 134217728 bytes');
        END;
        PERFORM @schema@.queue_message_check_size('content', printed, 134217728);
        IF printed > greatest(65536, 32::bigint * pg_column_size(NEW.content)) THEN
            plain := pg_column_size(NEW.content::pg_catalog.text::pg_catalog.jsonb);
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

-- Where nobody needs telling it ends at the first IF: one expression, because each is set up once a transaction; and with the rights and
-- the search path of who inserts, because to set others and set them back costs each INSERT half as much again. So what it calls is named
-- with its schema or takes exactly these types: on no path is there a better match.
CREATE OR REPLACE FUNCTION @schema@.queue_message_hint() RETURNS trigger LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
BEGIN
    IF @schema@.queue_message_hint_mode() = 'off'::pg_catalog.text OR pg_catalog.current_setting('relay.notify'::pg_catalog.text, true) = 'off'::pg_catalog.text
        OR @schema@.queue_message_hint_mode() = 'idle'::pg_catalog.text
            AND pg_catalog.pg_try_advisory_xact_lock_shared(@schema@.queue_message_gate_key()) THEN
        RETURN NULL;
    ELSIF TG_LEVEL = 'ROW' THEN
        PERFORM @schema@.queue_message_tell(@schema@.queue_message_hint_mode(), NEW.id);
    ELSE
        PERFORM @schema@.queue_message_tell(@schema@.queue_message_hint_mode(), NULL);
    END IF;
    RETURN NULL;
END
$body$;

-- Runs after queue_message_check, by its name: what cannot be printed is refused there. 16 KiB take a fold about as long as three small rows,
-- and a tenth of that where they are headers, each of which the queue judges anew.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_measure() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    NEW.size := octet_length(NEW.content::pg_catalog.text) + octet_length(NEW.options::pg_catalog.text) + coalesce(octet_length(NEW.body), 0);
    NEW.large := NEW.size + 9 * octet_length(NEW.options::pg_catalog.text) > 16384;
    NEW.due_at := greatest(NEW.due_at, clock_timestamp());
    RETURN NEW;
END
$body$;

-- Whether these options are of the common kind, which can be sent; false says nothing.
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
$$;

-- The sentence that says why these options can never be sent; NULL if they can. As before, but options have a limit as
-- text. Short ones of the common kind stay below it: they hold no list, and a number with a name takes 17 bytes.
CREATE OR REPLACE FUNCTION @schema@.queue_message_options_error(options jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
DECLARE
    spelling pg_catalog.text;
    name pg_catalog.text;
    value pg_catalog.jsonb;
    problem pg_catalog.text;
    headers pg_catalog.jsonb;
    cc pg_catalog.jsonb;
    bcc pg_catalog.jsonb;
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
        @schema@.queue_message_headers_problem(@schema@.queue_message_select(@schema@.queue_message_select(headers, 'CC', cc), 'BCC', bcc)),
        @schema@.queue_message_options_length_problem(options));
END
$$;

-- One publish option: every spelling to its snake-case name; NULL for one that does not exist.
CREATE OR REPLACE FUNCTION @schema@.queue_message_option_name(spelling text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT '{"appId": "app_id", "BCC": "bcc", "CC": "cc", "contentEncoding": "content_encoding", "contentType": "content_type",
        "correlationId": "correlation_id", "deliveryMode": "delivery_mode", "expiration": "expiration", "headers": "headers",
        "immediate": "immediate", "mandatory": "mandatory", "messageId": "message_id", "persistent": "persistent",
        "priority": "priority", "replyTo": "reply_to", "timestamp": "timestamp", "type": "type", "userId": "user_id",
        "app_id": "app_id", "bcc": "bcc", "cc": "cc", "content_encoding": "content_encoding", "content_type": "content_type",
        "correlation_id": "correlation_id", "delivery_mode": "delivery_mode", "message_id": "message_id",
        "reply_to": "reply_to", "user_id": "user_id"}'::pg_catalog.jsonb ->> spelling
$$;

-- Headers as they will be sent: the relay's own left out, the option CC or BCC put where RabbitMQ reads it.
CREATE OR REPLACE FUNCTION @schema@.queue_message_select(headers jsonb, name text, keys jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT headers - '{x-relay-id,x-relay-replay-of}'::pg_catalog.text[] || CASE WHEN keys IS NULL THEN '{}'::pg_catalog.jsonb
        ELSE jsonb_build_object(name, CASE jsonb_typeof(keys) WHEN 'array' THEN keys ELSE jsonb_build_array(keys) END) END
$$;

-- Options without the trace of their transaction, which does not keep messages apart.
CREATE OR REPLACE FUNCTION @schema@.queue_message_untraced(options jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT CASE WHEN jsonb_typeof(options -> 'headers') IS DISTINCT FROM 'object' THEN options
        WHEN (options -> 'headers') - '{traceparent,tracestate}'::pg_catalog.text[] = '{}' THEN options - 'headers'
        ELSE jsonb_set(options, '{headers}', (options -> 'headers') - '{traceparent,tracestate}'::pg_catalog.text[]) END
$body$;

-- The options with a W3C trace context among their headers, as relay/trace.py has it: version, trace, span and flags in hexadecimal. NULL
-- where it is not of that shape, where the application has put a trace there itself, and where the options could not be sent with it: a
-- trace breaks no business transaction. A state that is not well formed is left out.
CREATE OR REPLACE FUNCTION @schema@.queue_message_traced(options jsonb, traceparent text, tracestate text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
#variable_conflict use_variable
DECLARE
    headers pg_catalog.jsonb;
BEGIN
    IF traceparent !~ '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$'::pg_catalog.text
        OR jsonb_typeof(options) <> 'object'::pg_catalog.text
    THEN
        RETURN NULL;
    END IF;
    headers := coalesce(nullif(options -> 'headers'::pg_catalog.text, 'null'::pg_catalog.jsonb), '{}'::pg_catalog.jsonb);
    IF jsonb_typeof(headers) <> 'object'::pg_catalog.text OR headers ?| '{traceparent,tracestate}'::pg_catalog.text[] THEN
        RETURN NULL;
    END IF;
    headers := headers || jsonb_build_object('traceparent'::pg_catalog.text, traceparent);
    IF tracestate <> ''::pg_catalog.text AND @schema@.queue_message_is_tracestate(tracestate) THEN
        headers := headers || jsonb_build_object('tracestate'::pg_catalog.text, tracestate);
    END IF;
    options := options || jsonb_build_object('headers'::pg_catalog.text, headers);
    RETURN CASE WHEN @schema@.queue_message_options_error(options) IS NULL THEN options END;
END
$$;

-- Why options are too long as text, as relay/encoding.py has it; NULL if they are not. Some bytes of a number are 16,000 of text: what takes up to
-- 4 KiB cannot be too long and is not printed. The size of a compressed value says nothing. Numbers first and one by one, because PostgreSQL prints no
-- more than a gigabyte.
CREATE OR REPLACE FUNCTION @schema@.queue_message_options_length_problem(options jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN CASE
        WHEN pg_catalog.pg_column_size(options) <= 4096 AND pg_catalog.pg_column_compression(options) IS NULL THEN NULL
        WHEN (SELECT sum(octet_length(number::pg_catalog.text)) > 8388608 FROM pg_catalog.jsonb_path_query(options,
                'strict $.** ? (@.type() == "number")'::pg_catalog.jsonpath) AS number) OR octet_length(options::pg_catalog.text) > 8388608
            THEN 'options is longer than 8388608 bytes as text; write numbers of that many digits as strings' END;
END
$$;

-- The first thing that keeps a headers table from being sent; NULL if nothing does.
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

-- Up to 32 members key=value in 512 bytes, no key twice. Lengths are counted rather than repeated in the expression, which would be large.
CREATE OR REPLACE FUNCTION @schema@.queue_message_is_tracestate(tracestate text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
#variable_conflict use_variable
DECLARE
    member pg_catalog.text;
    keys pg_catalog.text[];
BEGIN
    IF tracestate IS NULL OR octet_length(tracestate) > 512 THEN
        RETURN false;
    END IF;
    FOREACH member IN ARRAY string_to_array(tracestate, ','::pg_catalog.text) LOOP
        member := btrim(member, E' \t'::pg_catalog.text);
        CONTINUE WHEN member = ''::pg_catalog.text;
        IF member !~ '^[a-z0-9][a-z0-9_*/-]*(@[a-z][a-z0-9_*/-]*)?=[ -+.-<>-~-]*[!-+.-<>-~-]$'::pg_catalog.text OR strpos(member, '='::pg_catalog.text) > 257
            OR octet_length(member) - strpos(member, '='::pg_catalog.text) > 256 OR split_part(member, '='::pg_catalog.text, 1) = ANY (keys)
        THEN
            RETURN false;
        END IF;
        keys := keys || split_part(member, '='::pg_catalog.text, 1);
    END LOOP;
    RETURN cardinality(keys) <= 32;
END
$$;

-- A time-ordered uuid (RFC 9562, version 7): neighbours in time are neighbours in the indexes.
CREATE OR REPLACE FUNCTION @schema@.queue_message_uuid() RETURNS uuid LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::pg_catalog.uuid;
END
$$;
