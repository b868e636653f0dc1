-- What runs with an inserter's path gives PostgreSQL's operators values of exactly their types. An operator of another schema that takes, say, numeric
-- and integer fits `extract(...) * 1000` better than PostgreSQL's own of two numeric does, and was called with the inserter's rights.

-- A time-ordered uuid (RFC 9562, version 7): neighbours in time are neighbours in the indexes.
CREATE OR REPLACE FUNCTION @schema@.queue_message_uuid() RETURNS uuid LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000::pg_catalog.numeric)::bigint) FROM 3) FROM 1 FOR 6),
        52, 1), 53, 1), 'hex')::pg_catalog.uuid;
END
$$;

ALTER FUNCTION @schema@.queue_message_check_size(text, bigint, bigint) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION @schema@.queue_message_traced(jsonb, text, text) SET search_path = pg_catalog, pg_temp;

-- As in 0055, and its sentences are not put together by operators.
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
                PERFORM @schema@.queue_message_refuse('content', format('content takes %s bytes and %s as text, more than 32 times as '
                    'many; write numbers of that many digits as strings', plain, printed));
            END IF;
        END IF;
        IF NEW.attempts NOT BETWEEN 0 AND 2000000000 THEN
            PERFORM @schema@.queue_message_refuse('attempts', format('attempts is %s; it must be between 0 and 2000000000', NEW.attempts));
        END IF;
        PERFORM @schema@.queue_message_check_time('available_at', NEW.available_at);
        PERFORM @schema@.queue_message_check_size('body', octet_length(NEW.body), 134217728);
        IF NEW.body IS NOT NULL AND NEW.content <> '{}' THEN
            PERFORM @schema@.queue_message_refuse('body',
                format('body (%s bytes) and content are both given; leave content out, a message has one payload', octet_length(NEW.body)));
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
