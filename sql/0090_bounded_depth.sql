-- Functions build JSON of 14,500 levels, and PostgreSQL prints it, but reads text of 13,000 levels at most. A dump with one such message brought no
-- message of its table back, and no logical replica took another row.

-- As before, but no content has more than 6,000 levels.
CREATE OR REPLACE FUNCTION @schema@.queue_message_check() RETURNS trigger LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
DECLARE
    path pg_catalog.text;
    problem pg_catalog.text;
    printed bigint;
    plain bigint;
    traced pg_catalog.jsonb;
BEGIN
    IF (pg_catalog.octet_length(pg_catalog.convert_to(NEW.exchange OPERATOR(pg_catalog.||) NEW.routing_key
            OPERATOR(pg_catalog.||) coalesce(NEW.ordering_key, ''), pg_catalog.getdatabaseencoding())) OPERATOR(pg_catalog.>) 255
        OR pg_catalog.starts_with(NEW.routing_key, 'amq.rabbitmq.reply-to.'::pg_catalog.text)
        OR NEW.body IS NOT NULL OR NEW.available_at IS NOT NULL OR NEW.expires_at IS NOT NULL
        OR NEW.created_at OPERATOR(pg_catalog.<>) pg_catalog.now()
        OR pg_catalog.pg_column_compression(NEW.content) IS NOT NULL OR pg_catalog.pg_column_size(NEW.content) OPERATOR(pg_catalog.>) 65536
        OR pg_catalog.octet_length(pg_catalog.convert_to(NEW.content::pg_catalog.text, pg_catalog.getdatabaseencoding()))
            OPERATOR(pg_catalog.>) 65536
        OR NEW.xid OPERATOR(pg_catalog.<>) pg_catalog.pg_current_xact_id() OR NEW.attempts OPERATOR(pg_catalog.<>) 0
        OR NEW.lock_expires_at IS NOT NULL OR NEW.lock_token IS NOT NULL OR NEW.locked_by IS NOT NULL OR NEW.last_error IS NOT NULL
        OR pg_catalog.current_setting('relay.traceparent', true) IS NOT NULL
        -- The last, so that what needs the closer look has its options judged there alone.
        OR NEW.options OPERATOR(pg_catalog.<>) '{}'::pg_catalog.jsonb AND (@schema@.queue_message_options_error(NEW.options) IS NOT NULL
            OR pg_catalog.convert_to(NEW.options::pg_catalog.text, pg_catalog.getdatabaseencoding()) IS NULL)) IS FALSE
    THEN
        RETURN NEW;
    END IF;
    IF TG_OP OPERATOR(pg_catalog.=) 'INSERT'::pg_catalog.text
        AND pg_catalog.current_setting('relay.traceparent', true) OPERATOR(pg_catalog.<>) ''::pg_catalog.text
    THEN
        traced := @schema@.queue_message_traced(NEW.options, pg_catalog.current_setting('relay.traceparent', true),
            pg_catalog.current_setting('relay.tracestate', true));
        NEW.options := coalesce(traced, NEW.options);
    END IF;
    IF NEW.options OPERATOR(pg_catalog.<>) '{}'::pg_catalog.jsonb
            AND (traced IS NULL AND @schema@.queue_message_options_error(NEW.options) IS NOT NULL
                OR pg_catalog.convert_to(NEW.options::pg_catalog.text, pg_catalog.getdatabaseencoding()) IS NULL)
        OR pg_catalog.octet_length(NEW.exchange) OPERATOR(pg_catalog.>) 255 OR pg_catalog.octet_length(NEW.routing_key) OPERATOR(pg_catalog.>) 255
        OR pg_catalog.octet_length(NEW.ordering_key) OPERATOR(pg_catalog.>) 1024
        OR pg_catalog.starts_with(NEW.routing_key, 'amq.rabbitmq.reply-to.'::pg_catalog.text)
        OR NEW.body IS NOT NULL
            AND (pg_catalog.octet_length(NEW.body) OPERATOR(pg_catalog.>) 134217728 OR NEW.content OPERATOR(pg_catalog.<>) '{}'::pg_catalog.jsonb)
        OR (CASE WHEN pg_catalog.pg_column_size(NEW.content) OPERATOR(pg_catalog.>) 65536
                OR pg_catalog.pg_column_compression(NEW.content) IS NOT NULL THEN true
            ELSE pg_catalog.octet_length(pg_catalog.convert_to(NEW.content::pg_catalog.text, pg_catalog.getdatabaseencoding()))
                OPERATOR(pg_catalog.>) greatest(65536, 32::bigint OPERATOR(pg_catalog.*) pg_catalog.pg_column_size(NEW.content)) END)
        OR least(NEW.available_at, NEW.expires_at, NEW.created_at, NEW.lock_expires_at)
            OPERATOR(pg_catalog.<) '0001-01-01 00:00:00+00'::pg_catalog.timestamptz
        OR greatest(NEW.available_at, NEW.expires_at, NEW.created_at, NEW.lock_expires_at)
            OPERATOR(pg_catalog.>=) '10000-01-01 00:00:00+00'::pg_catalog.timestamptz
        OR NEW.attempts OPERATOR(pg_catalog.<) 0 OR NEW.attempts OPERATOR(pg_catalog.>) 2000000000
        OR TG_OP OPERATOR(pg_catalog.=) 'INSERT'::pg_catalog.text AND (NEW.xid OPERATOR(pg_catalog.<>) pg_catalog.pg_current_xact_id()
            OR NEW.attempts OPERATOR(pg_catalog.<>) 0 OR NEW.lock_expires_at IS NOT NULL OR NEW.lock_token IS NOT NULL
            OR NEW.locked_by IS NOT NULL OR NEW.last_error IS NOT NULL OR NEW.expires_at OPERATOR(pg_catalog.<=) NEW.available_at)
    THEN
        -- To set the path and set it back costs a row half as much again as the rest of these checks.
        path := pg_catalog.current_setting('search_path');
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        problem := @schema@.queue_message_options_error(NEW.options);
        IF problem IS NOT NULL THEN
            PERFORM @schema@.queue_message_refuse('options', problem);
        END IF;
        BEGIN
            printed := pg_catalog.octet_length(pg_catalog.convert_to(NEW.content::pg_catalog.text, pg_catalog.getdatabaseencoding()));
        EXCEPTION WHEN program_limit_exceeded THEN
            PERFORM @schema@.queue_message_refuse('content', 'content is longer than a gigabyte as text; the limit is 134217728 bytes');
        END;
        PERFORM @schema@.queue_message_check_size('content', printed, 134217728);
        -- Smaller ones have at most 8,200 levels.
        IF (pg_catalog.pg_column_size(NEW.content) > 65536 OR pg_catalog.pg_column_compression(NEW.content) IS NOT NULL)
            AND pg_catalog.jsonb_path_exists(NEW.content, '$.**{6001}')
        THEN
            PERFORM @schema@.queue_message_refuse('content', 'content has more than 6000 levels of lists and objects; PostgreSQL could not restore it');
        END IF;
        IF printed > greatest(65536, 32::bigint * pg_catalog.pg_column_size(NEW.content)) THEN
            plain := pg_catalog.pg_column_size(NEW.content::pg_catalog.text::pg_catalog.jsonb);
            IF printed > 32 * plain THEN
                PERFORM @schema@.queue_message_refuse('content', pg_catalog.format('content takes %s bytes and %s as text, more than 32 times as '
                    'many; write numbers of that many digits as strings', plain, printed));
            END IF;
        END IF;
        IF NEW.attempts NOT BETWEEN 0 AND 2000000000 THEN
            PERFORM @schema@.queue_message_refuse('attempts', pg_catalog.format('attempts is %s; it must be between 0 and 2000000000', NEW.attempts));
        END IF;
        PERFORM @schema@.queue_message_check_time('available_at', NEW.available_at);
        PERFORM @schema@.queue_message_check_size('body', pg_catalog.octet_length(NEW.body), 134217728);
        IF NEW.body IS NOT NULL AND NEW.content <> '{}' THEN
            PERFORM @schema@.queue_message_refuse('body',
                pg_catalog.format('body (%s bytes) and content are both given; leave content out, a message has one payload', pg_catalog.octet_length(NEW.body)));
        END IF;
        PERFORM @schema@.queue_message_check_time('created_at', NEW.created_at);
        PERFORM @schema@.queue_message_check_size('exchange', pg_catalog.octet_length(NEW.exchange), 255);
        PERFORM @schema@.queue_message_check_time('expires_at', NEW.expires_at);
        PERFORM @schema@.queue_message_check_time('lock_expires_at', NEW.lock_expires_at);
        PERFORM @schema@.queue_message_check_size('ordering_key', pg_catalog.octet_length(NEW.ordering_key), 1024);
        PERFORM @schema@.queue_message_check_size('routing_key', pg_catalog.octet_length(NEW.routing_key), 255);
        IF pg_catalog.starts_with(NEW.routing_key, 'amq.rabbitmq.reply-to.'::pg_catalog.text) THEN
            PERFORM @schema@.queue_message_refuse('routing_key', 'routing_key must not begin with amq.rabbitmq.reply-to.: RabbitMQ takes such '
                'a key for the address of a consumer, and closes the connection over one that is none');
        END IF;
        IF TG_OP = 'INSERT' AND NEW.xid <> pg_catalog.pg_current_xact_id() THEN
            -- A position below the heads of the relays would strand the message.
            PERFORM @schema@.queue_message_refuse_new(NEW.id, 'position', 'its place is given by the database; leave out xid and seq.');
        ELSIF TG_OP = 'INSERT' AND (NEW.attempts <> 0
                OR pg_catalog.num_nonnulls(NEW.lock_expires_at, NEW.lock_token, NEW.locked_by, NEW.last_error) > 0) THEN
            PERFORM @schema@.queue_message_refuse_new(NEW.id, 'ready', 'a new message is not locked and has no attempts; '
                'leave out lock_expires_at, lock_token, locked_by, attempts and last_error.');
        ELSIF TG_OP = 'INSERT' AND NEW.expires_at <= NEW.available_at THEN
            PERFORM @schema@.queue_message_refuse('expires_at', 'expires_at is not after available_at; the message could never be sent');
        END IF;
        PERFORM pg_catalog.set_config('search_path', path, true);
    END IF;
    RETURN NEW;
END
$body$;

-- JSON that other logins may write.
ALTER TABLE @schema@.queue_message_stats_window ADD CONSTRAINT queue_message_stats_window_codes_depth_check
    CHECK (NOT jsonb_path_exists(codes, '$.**{6001}')) NOT VALID;
ALTER TABLE @schema@.queue_message_stats_hour ADD CONSTRAINT queue_message_stats_hour_codes_depth_check
    CHECK (NOT jsonb_path_exists(codes, '$.**{6001}')) NOT VALID;
ALTER TABLE @schema@.queue_message_stats_day ADD CONSTRAINT queue_message_stats_day_codes_depth_check
    CHECK (NOT jsonb_path_exists(codes, '$.**{6001}')) NOT VALID;
ALTER TABLE @schema@.queue_message_relay ADD CONSTRAINT queue_message_relay_state_depth_check
    CHECK (NOT jsonb_path_exists(state, '$.**{6001}')) NOT VALID;
ALTER TABLE @schema@.queue_message_export ADD CONSTRAINT queue_message_export_aside_depth_check
    CHECK (NOT jsonb_path_exists(aside, '$.**{6001}')) NOT VALID;
