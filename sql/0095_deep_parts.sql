-- Deep parts of bundles held up all keys: the queue took each part and refused them together, and each call of the fold divided them again.

-- As before, but contents have 8,300 levels at most, as small ones have anyway. A bundle of accepted parts was refused, and so was content that had been
-- compressed meanwhile, when a fold or a replay inserted it again.
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
            AND pg_catalog.jsonb_path_exists(NEW.content, '$.**{8301}')
        THEN
            PERFORM @schema@.queue_message_refuse('content', 'content has more than 8300 levels of lists and objects; PostgreSQL could not restore it');
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

-- As before, but a message is also large if it is so where it is stored: 7,000 levels are 14 kB of text, 56 kB of jsonb, and 3 ms of a fold.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_measure() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    NEW.size := octet_length(NEW.content::text) + octet_length(NEW.options::text) + coalesce(octet_length(NEW.body), 0);
    NEW.large := greatest(NEW.size, pg_column_size(NEW.content)) + 9 * octet_length(NEW.options::text) > 16384
        OR NEW.bundle_key IS NOT NULL AND octet_length(NEW.content::text) > 16 * pg_column_size(NEW.content);
    NEW.due_at := greatest(NEW.due_at, clock_timestamp());
    RETURN NEW;
END
$body$;

-- As before, but a bundle that has to be divided is left to the large ones: each call divides it again, and small keys would wait for that.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold_past(seqs bigint[], clock timestamptz, until timestamptz, state text, words text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    key record;
    newest bigint := seqs[cardinality(seqs)];
BEGIN
    SELECT count(DISTINCT (k.exchange, k.coalesce_key, k.bundle_key, CASE WHEN k.bundle_key IS NOT NULL THEN k.routing_key END)) AS keys,
        bool_and(k.bundle_key IS NOT NULL) AS bundled, bool_or(NOT k.large) AS small INTO key
    FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (seqs);
    PERFORM set_config('relay.fold_waited', 'on', true) WHERE state = 'KEY01';
    IF key.keys > 1 THEN
        RETURN @schema@.queue_message_fold_some(seqs, 10, clock, until);
    ELSIF state = 'KEY01' THEN
        RETURN @schema@.queue_message_fold_list(seqs, clock, until, fresh => true);
    ELSIF state NOT IN ('KEY02', 'KEY03') THEN
        PERFORM @schema@.queue_message_keyed_failed(seqs, clock, @schema@.queue_message_why(state, words));
        RETURN 0;
    ELSIF key.bundled AND cardinality(seqs) > 1 AND key.small AND state = 'KEY02' THEN
        PERFORM @schema@.queue_message_keyed_leave(seqs, clock, cardinality(seqs), '-infinity');
        RETURN 0;
    ELSIF key.bundled AND cardinality(seqs) > 1 THEN
        RETURN @schema@.queue_message_fold_pieces(seqs, clock, until, halves => true);
    END IF;
    PERFORM @schema@.queue_message_keyed_supersede(seqs);
    INSERT INTO @schema@.queue_message_coalesced (exchange, coalesce_key, message_id, seq, folded_at)
    SELECT k.exchange, k.coalesce_key, k.id, k.seq, greatest(clock, clock_timestamp())
    FROM @schema@.queue_message_keyed_row k WHERE k.seq = newest AND k.coalesce_key IS NOT NULL
    ON CONFLICT ON CONSTRAINT queue_message_coalesced_pkey DO UPDATE SET seq = excluded.seq, folded_at = excluded.folded_at;
    PERFORM @schema@.queue_message_keyed_archive(
        ARRAY[newest], 'rejected', CASE state WHEN 'KEY03' THEN 'body_too_large' ELSE 'refused' END, words, 'fold');
    RETURN cardinality(seqs);
END
$body$;

-- As before, and what the small keys left to the large ones is sent in the same call.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold(now timestamptz DEFAULT NULL, most integer DEFAULT 10000,
    since timestamptz DEFAULT '-infinity', OUT folded bigint, OUT next_at timestamptz, OUT superseded bigint, OUT bundled bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    until timestamptz := clock_timestamp() + interval '2 s';
    large boolean;
BEGIN
    folded := 0;
    next_at := (SELECT k.due_at FROM @schema@.queue_message_keyed_row k WHERE k.due_at >= since ORDER BY k.due_at LIMIT 1);
    IF next_at <= clock AND @schema@.queue_message_take_turn('fold') THEN
        large := clock >= (SELECT k.due_at FROM @schema@.queue_message_keyed_row k WHERE k.large AND k.due_at >= since ORDER BY k.due_at LIMIT 1);
        folded := @schema@.queue_message_fold_some(@schema@.queue_message_keyed_due(clock, most, false, since), 1, clock,
            until - CASE WHEN large THEN interval '1 s' ELSE '0 s' END, large => false, since => since);
        IF large OR clock >= (SELECT k.due_at FROM @schema@.queue_message_keyed_row k WHERE k.large AND k.due_at >= since ORDER BY k.due_at LIMIT 1) THEN
            folded := folded + @schema@.queue_message_fold_large(clock, 1 + most / 10, until, since);
        END IF;
        next_at := (SELECT k.due_at FROM @schema@.queue_message_keyed_row k WHERE k.due_at >= since ORDER BY k.due_at LIMIT 1);
    END IF;
    superseded := 0;
    bundled := 0;
    IF folded > 0 THEN
        SELECT count(*) FILTER (WHERE a.error_code = 'superseded'), count(*) FILTER (WHERE a.error_code = 'bundled') INTO superseded, bundled
        FROM @schema@.queue_message_archive a WHERE a.archived_xid = pg_current_xact_id();
    END IF;
END
$body$;
