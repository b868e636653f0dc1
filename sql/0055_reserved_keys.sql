-- Routing keys of RabbitMQ's direct reply-to are refused: exchange '' takes what follows amq.rabbitmq.reply-to. for the address of a process,
-- and RabbitMQ 3.10 closes the connection over one that is none. At any exchange, because a queue that dead-letters to '' by the message's own
-- key ends over it.

-- As in 0052, and the routing key is none of those.
CREATE OR REPLACE FUNCTION @schema@.queue_message_check() RETURNS trigger LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    problem pg_catalog.text;
    printed bigint;
    plain bigint;
    traced pg_catalog.jsonb;
BEGIN
    IF (octet_length(NEW.exchange || NEW.routing_key || coalesce(NEW.ordering_key, '')) > 255
        OR pg_catalog.starts_with(NEW.routing_key, 'amq.rabbitmq.reply-to.'::pg_catalog.text)
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
        OR pg_catalog.starts_with(NEW.routing_key, 'amq.rabbitmq.reply-to.'::pg_catalog.text)
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
        IF pg_catalog.starts_with(NEW.routing_key, 'amq.rabbitmq.reply-to.'::pg_catalog.text) THEN
            PERFORM @schema@.queue_message_refuse('routing_key', 'routing_key must not begin with amq.rabbitmq.reply-to.: RabbitMQ takes such '
                'a key for the address of a consumer, and closes the connection over one that is none');
        END IF;
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

-- A list of short strings that may be routing keys.
CREATE OR REPLACE FUNCTION @schema@.queue_message_is_key_list(value jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    IF jsonb_typeof(value) <> 'array' THEN
        RETURN false;
    END IF;
    RETURN NOT EXISTS (SELECT FROM jsonb_array_elements(value) AS item (key)
        WHERE NOT @schema@.queue_message_is_text(item.key) OR starts_with(item.key #>> '{}', 'amq.rabbitmq.reply-to.'));
END
$$;

-- Where an option for further routing keys and the header of its name do not go together.
CREATE OR REPLACE FUNCTION @schema@.queue_message_routing_problem(headers jsonb, name text, keys jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN NOT @schema@.queue_message_is_key_list(headers -> name) THEN
            'options.headers.' || name || ' must be a list of strings, each of at most 255 bytes, none beginning with amq.rabbitmq.reply-to.'
        WHEN headers -> name <> @schema@.queue_message_select('{}', name, keys) -> name THEN
            'options.' || name || ' and options.headers.' || name || ' differ; give one of them' END
$$;

-- What a value of an option must be, where it is not; NULL if it is. As in 0033, but for cc and bcc.
CREATE OR REPLACE FUNCTION @schema@.queue_message_option_problem(name text, value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN name IN ('app_id', 'content_encoding', 'content_type', 'correlation_id', 'message_id', 'user_id') THEN
            CASE WHEN NOT @schema@.queue_message_is_text(value) THEN 'be a string of at most 255 bytes' END
        WHEN name IN ('bcc', 'cc') THEN
            CASE WHEN NOT @schema@.queue_message_is_key_list(
                    CASE jsonb_typeof(value) WHEN 'array' THEN value ELSE jsonb_build_array(value) END)
                THEN 'be a string or a list of strings, each of at most 255 bytes, none beginning with amq.rabbitmq.reply-to.' END
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
