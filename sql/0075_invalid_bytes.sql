-- COPY with the encoding SQL_ASCII stores whatever bytes it is given, and PostgreSQL checks nothing any more when it hands them out. One such message
-- stopped a relay. convert_to() checks its argument, also where there is nothing to convert, and fails with SQLSTATE 22021.

-- As before, and checks the bytes of each text whose length it looks at. Only a refusal comes before these checks.
CREATE OR REPLACE FUNCTION @schema@.queue_message_check() RETURNS trigger LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
DECLARE
    problem pg_catalog.text;
    printed bigint;
    plain bigint;
    traced pg_catalog.jsonb;
BEGIN
    IF (pg_catalog.octet_length(pg_catalog.convert_to(
            NEW.exchange || NEW.routing_key || coalesce(NEW.ordering_key, ''), pg_catalog.getdatabaseencoding())) > 255
        OR pg_catalog.starts_with(NEW.routing_key, 'amq.rabbitmq.reply-to.'::pg_catalog.text)
        OR NEW.body IS NOT NULL OR NEW.available_at IS NOT NULL OR NEW.expires_at IS NOT NULL OR NEW.created_at <> pg_catalog.now()
        OR pg_catalog.pg_column_compression(NEW.content) IS NOT NULL OR pg_catalog.pg_column_size(NEW.content) > 65536
        OR pg_catalog.octet_length(pg_catalog.convert_to(NEW.content::pg_catalog.text, pg_catalog.getdatabaseencoding())) > 65536
        OR NEW.xid <> pg_catalog.pg_current_xact_id() OR NEW.attempts <> 0 OR NEW.lock_expires_at IS NOT NULL OR NEW.lock_token IS NOT NULL
        OR NEW.locked_by IS NOT NULL OR NEW.last_error IS NOT NULL OR pg_catalog.current_setting('relay.traceparent', true) IS NOT NULL
        -- The last, so that what needs the closer look has its options judged there alone.
        OR NEW.options <> '{}' AND (@schema@.queue_message_options_error(NEW.options) IS NOT NULL
            OR pg_catalog.convert_to(NEW.options::pg_catalog.text, pg_catalog.getdatabaseencoding()) IS NULL)) IS FALSE
    THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'INSERT' AND pg_catalog.current_setting('relay.traceparent', true) <> '' THEN
        traced := @schema@.queue_message_traced(NEW.options, pg_catalog.current_setting('relay.traceparent', true),
            pg_catalog.current_setting('relay.tracestate', true));
        NEW.options := coalesce(traced, NEW.options);
    END IF;
    IF NEW.options <> '{}' AND (traced IS NULL AND @schema@.queue_message_options_error(NEW.options) IS NOT NULL
            OR pg_catalog.convert_to(NEW.options::pg_catalog.text, pg_catalog.getdatabaseencoding()) IS NULL)
        OR pg_catalog.octet_length(NEW.exchange) > 255 OR pg_catalog.octet_length(NEW.routing_key) > 255 OR pg_catalog.octet_length(NEW.ordering_key) > 1024
        OR pg_catalog.starts_with(NEW.routing_key, 'amq.rabbitmq.reply-to.'::pg_catalog.text)
        OR NEW.body IS NOT NULL AND (pg_catalog.octet_length(NEW.body) > 134217728 OR NEW.content <> '{}')
        OR (CASE WHEN pg_catalog.pg_column_size(NEW.content) > 65536 OR pg_catalog.pg_column_compression(NEW.content) IS NOT NULL THEN true
            ELSE pg_catalog.octet_length(pg_catalog.convert_to(NEW.content::pg_catalog.text, pg_catalog.getdatabaseencoding()))
                > greatest(65536, 32::bigint * pg_catalog.pg_column_size(NEW.content)) END)
        OR least(NEW.available_at, NEW.expires_at, NEW.created_at, NEW.lock_expires_at) < '0001-01-01 00:00:00+00'
        OR greatest(NEW.available_at, NEW.expires_at, NEW.created_at, NEW.lock_expires_at) >= '10000-01-01 00:00:00+00'
        OR NEW.attempts NOT BETWEEN 0 AND 2000000000
        OR (NEW.xid <> pg_catalog.pg_current_xact_id() OR NEW.attempts <> 0 OR NEW.lock_expires_at IS NOT NULL OR NEW.lock_token IS NOT NULL
            OR NEW.locked_by IS NOT NULL OR NEW.last_error IS NOT NULL OR NEW.expires_at <= NEW.available_at) AND TG_OP = 'INSERT'
    THEN
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
        IF TG_OP <> 'INSERT' THEN
            RETURN NEW;
        ELSIF NEW.xid <> pg_catalog.pg_current_xact_id() THEN
            -- A position below the heads of the relays would strand the message.
            PERFORM @schema@.queue_message_refuse_new(NEW.id, 'position', 'its place is given by the database; leave out xid and seq.');
        ELSIF NEW.attempts <> 0 OR pg_catalog.num_nonnulls(NEW.lock_expires_at, NEW.lock_token, NEW.locked_by, NEW.last_error) > 0 THEN
            PERFORM @schema@.queue_message_refuse_new(NEW.id, 'ready', 'a new message is not locked and has no attempts; '
                'leave out lock_expires_at, lock_token, locked_by, attempts and last_error.');
        ELSIF NEW.expires_at <= NEW.available_at THEN
            PERFORM @schema@.queue_message_refuse('expires_at', 'expires_at is not after available_at; the message could never be sent');
        END IF;
    END IF;
    RETURN NEW;
END
$body$;

-- As before, and checks the bytes of the keys.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keys_check(bundle_key text, coalesce_key text, dedup_key text, dedup_seconds integer, body bytea) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF num_nonnulls(bundle_key, coalesce_key, dedup_key) = 0 THEN
        PERFORM @schema@.queue_message_refuse('bundle_key',
            'bundle_key, coalesce_key and dedup_key are all null; insert a message without a key into queue_message');
    ELSIF bundle_key IS NOT NULL AND coalesce_key IS NOT NULL THEN
        PERFORM @schema@.queue_message_refuse('bundle_key',
            'bundle_key and coalesce_key are both given; a message is sent with others or replaced by them');
    ELSIF bundle_key IS NOT NULL AND body IS NOT NULL THEN
        PERFORM @schema@.queue_message_refuse('body', 'body and bundle_key are both given; a bundle is a JSON list, so use content');
    ELSIF dedup_seconds IS NOT NULL AND (dedup_key IS NULL OR dedup_seconds NOT BETWEEN 1 AND 31536000) THEN
        PERFORM @schema@.queue_message_refuse('dedup_seconds',
            'dedup_seconds is ' || dedup_seconds || '; it must be from 1 to 31536000, beside a dedup_key');
    END IF;
    PERFORM @schema@.queue_message_check_size(given.name, octet_length(convert_to(given.value, getdatabaseencoding())), 1024)
    FROM (VALUES ('bundle_key', bundle_key), ('coalesce_key', coalesce_key), ('dedup_key', dedup_key)) AS given (name, value);
END
$body$;

-- The same of marks and receipts.
CREATE FUNCTION @schema@.queue_message_bytes() RETURNS trigger
LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM pg_catalog.convert_to(NEW::pg_catalog.text, pg_catalog.getdatabaseencoding());
    RETURN NULL;
END
$body$;
CREATE TRIGGER queue_message_bytes AFTER INSERT ON @schema@.queue_message_received
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_bytes();
CREATE TRIGGER queue_message_bytes AFTER INSERT ON @schema@.queue_message_receipt
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_bytes();

-- As before, by the primary key alone. Where statistics know no key that is still in force, the index of `until` seemed to be as good, and each
-- INSERT with a dedup_key walked all keys: 33,000 of them in one statement did not end within ten minutes.
CREATE OR REPLACE FUNCTION @schema@.queue_message_first(exchange text, dedup_key text, message uuid, seconds integer) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_variable
BEGIN
    -- By far the most that are known are so for longer: to see that locks nothing.
    IF EXISTS (SELECT FROM @schema@.queue_message_dedup d
        WHERE d.exchange = exchange AND d.dedup_key = dedup_key AND (SELECT d.until OFFSET 0) > now()) THEN
        RETURN false;
    END IF;
    -- The table itself: the function that reads a setting is planned at each call, which costs more than all the rest.
    INSERT INTO @schema@.queue_message_dedup AS d (exchange, dedup_key, message_id, until) VALUES (exchange, dedup_key, message,
        now() + make_interval(secs => coalesce(seconds,
            (SELECT s.value FROM @schema@.queue_message_setting s WHERE s.name = 'dedup_seconds')::integer, 86400)))
    ON CONFLICT ON CONSTRAINT queue_message_dedup_pkey DO UPDATE SET message_id = excluded.message_id, until = excluded.until
    WHERE d.until <= now();
    RETURN FOUND;
END
$body$;
