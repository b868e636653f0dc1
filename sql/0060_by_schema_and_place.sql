-- What runs with an inserter's path names PostgreSQL's functions with their schema. Of two functions by one name PostgreSQL calls the one whose
-- parameters fit exactly, wherever its schema is on the path: a stranger's set_bit(bytea, integer, integer) went before PostgreSQL's own, which
-- takes a bigint, and ran with the rights of whoever inserted.

-- A time-ordered uuid (RFC 9562, version 7): neighbours in time are neighbours in the indexes.
CREATE OR REPLACE FUNCTION @schema@.queue_message_uuid() RETURNS uuid LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
#variable_conflict use_variable
BEGIN
    RETURN pg_catalog.encode(pg_catalog.set_bit(pg_catalog.set_bit(overlay(pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
        PLACING substring(pg_catalog.int8send((extract(epoch FROM pg_catalog.clock_timestamp()) * 1000::pg_catalog.numeric)::bigint) FROM 3)
        FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::pg_catalog.uuid;
END
$$;

-- PostgreSQL 18 brings its own. A database that is upgraded to it keeps the function above, which does as well.
DO $do$
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        CREATE OR REPLACE FUNCTION @schema@.queue_message_uuid() RETURNS uuid LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
        #variable_conflict use_variable
        BEGIN
            RETURN pg_catalog.uuidv7();
        END
        $$;
    END IF;
END
$do$;

-- As before, by their schema.
CREATE OR REPLACE FUNCTION @schema@.queue_message_check() RETURNS trigger LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    problem pg_catalog.text;
    printed bigint;
    plain bigint;
    traced pg_catalog.jsonb;
BEGIN
    IF (pg_catalog.octet_length(NEW.exchange || NEW.routing_key || coalesce(NEW.ordering_key, '')) > 255
        OR pg_catalog.starts_with(NEW.routing_key, 'amq.rabbitmq.reply-to.'::pg_catalog.text)
        OR NEW.body IS NOT NULL OR NEW.available_at IS NOT NULL OR NEW.expires_at IS NOT NULL OR NEW.created_at <> pg_catalog.now()
        OR pg_catalog.pg_column_compression(NEW.content) IS NOT NULL OR pg_catalog.pg_column_size(NEW.content) > 65536
        OR pg_catalog.octet_length(NEW.content::pg_catalog.text) > 65536
        OR NEW.xid <> pg_catalog.pg_current_xact_id() OR NEW.attempts <> 0 OR NEW.lock_expires_at IS NOT NULL OR NEW.lock_token IS NOT NULL
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
        OR pg_catalog.octet_length(NEW.exchange) > 255 OR pg_catalog.octet_length(NEW.routing_key) > 255 OR pg_catalog.octet_length(NEW.ordering_key) > 1024
        OR pg_catalog.starts_with(NEW.routing_key, 'amq.rabbitmq.reply-to.'::pg_catalog.text)
        OR NEW.body IS NOT NULL AND (pg_catalog.octet_length(NEW.body) > 134217728 OR NEW.content <> '{}')
        OR (CASE WHEN pg_catalog.pg_column_size(NEW.content) > 65536 OR pg_catalog.pg_column_compression(NEW.content) IS NOT NULL THEN true
            ELSE pg_catalog.octet_length(NEW.content::pg_catalog.text) > greatest(65536, 32::bigint * pg_catalog.pg_column_size(NEW.content)) END)
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
            printed := pg_catalog.octet_length(NEW.content::pg_catalog.text);
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
$$;

-- As before, by their schema.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_measure() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    NEW.size := pg_catalog.octet_length(NEW.content::pg_catalog.text) + pg_catalog.octet_length(NEW.options::pg_catalog.text)
        + coalesce(pg_catalog.octet_length(NEW.body), 0);
    NEW.large := NEW.size + 9 * pg_catalog.octet_length(NEW.options::pg_catalog.text) > 16384;
    NEW.due_at := greatest(NEW.due_at, pg_catalog.clock_timestamp());
    RETURN NEW;
END
$body$;

-- As before, by its schema.
CREATE OR REPLACE FUNCTION @schema@.queue_message_setting_check() RETURNS trigger LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
DECLARE
    sentence text := @schema@.queue_message_setting_error(NEW.name, NEW.value);
BEGIN
    IF sentence IS NOT NULL THEN
        RAISE EXCEPTION '%', sentence USING ERRCODE = 'check_violation', TABLE = 'queue_message_setting', COLUMN = 'value';
    END IF;
    NEW.changed_at := pg_catalog.now();
    RETURN NEW;
END
$body$;

-- As before, but what is sent with a new id counts as no replay of the message whose id it had: that id may be somebody else's, chosen by whoever
-- inserted both. The archive says what was sent instead.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_send(due bigint[], fresh boolean) RETURNS TABLE (own uuid, sent uuid, number bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $body$
#variable_conflict use_variable
DECLARE
    size_limit bigint := @schema@.queue_message_setting_value('max_body_bytes')::bigint;
    made bigint;
    taken uuid[];
    chosen uuid[];
BEGIN
    IF current_setting('relay.fold_waited', true) = 'on' THEN
        PERFORM set_config('lock_timeout', '1ms', true);
    END IF;
    IF fresh THEN
        SELECT array_agg(k.id), array_agg(@schema@.queue_message_uuid()) INTO taken, chosen
        FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (due) AND k.bundle_key IS NULL;
    END IF;
    RETURN QUERY
        INSERT INTO @schema@.queue_message AS m (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at,
            created_at)
        SELECT coalesce(chosen[array_position(taken, k.id)], k.id), k.exchange, k.routing_key, k.content, k.body, k.options,
            k.ordering_key, k.available_at, k.expires_at, k.created_at
        FROM @schema@.queue_message_keyed_row k
        WHERE k.seq = ANY (due) AND k.bundle_key IS NULL AND (k.size <= size_limit OR @schema@.queue_message_keyed_within(
            coalesce(octet_length(k.body), k.size - octet_length(k.options::text)), size_limit,
            CASE WHEN k.body IS NULL THEN 'content' ELSE 'body' END))
        ORDER BY k.seq
        RETURNING coalesce(taken[array_position(chosen, m.id)], m.id), m.id, m.seq;
    GET DIAGNOSTICS made = ROW_COUNT;
    PERFORM @schema@.queue_message_none_skipped('queue_message',
        (SELECT count(*) FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (due) AND k.bundle_key IS NULL), made);
EXCEPTION WHEN OTHERS THEN
    PERFORM @schema@.queue_message_keyed_refuse(SQLSTATE, SQLERRM, fresh);
    RAISE;
END
$body$;

CREATE INDEX queue_message_audit_replay_idx ON @schema@.queue_message_audit (subject) WHERE action = 'replay';

-- Whether every known replay of a message's id is of another message with that id, which was archived at another place. Producers choose ids.
-- Before the audit noted places (0044), and in a replay's ledger of another job, a replay counts for all with the id.
CREATE FUNCTION @schema@.queue_message_replayed_elsewhere(message uuid, xid xid8, seq bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $body$
    SELECT coalesce(bool_and(coalesce(noted.became ->> 'place' <> format('%s/%s', xid, seq), false)), false)
        AND NOT EXISTS (SELECT FROM @schema@.queue_message_archive r JOIN @schema@.queue_message_replay_ledger l ON l.id = r.id
                        WHERE r.replay_of = message AND (l.xid, l.seq) = (queue_message_replayed_elsewhere.xid, queue_message_replayed_elsewhere.seq))
    FROM @schema@.queue_message_audit noted WHERE noted.action = 'replay' AND noted.subject = message::text
$body$;

-- As before, but of several messages with one id a replay counts for the one that was replayed.
CREATE OR REPLACE FUNCTION @schema@.queue_message_find(
    archived_from timestamptz DEFAULT NULL, archived_to timestamptz DEFAULT NULL, exchange text DEFAULT NULL, routing_key text DEFAULT NULL,
    result text DEFAULT NULL, error_code text DEFAULT NULL, again boolean DEFAULT false,
    after_archived_xid xid8 DEFAULT '0', after_xid xid8 DEFAULT '0', after_seq bigint DEFAULT 0, most integer DEFAULT 1000,
    job text DEFAULT NULL
) RETURNS TABLE (id uuid, archived_xid xid8, xid xid8, seq bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
#variable_conflict use_variable
BEGIN
    RETURN QUERY SELECT a.id, a.archived_xid, a.xid, a.seq
    FROM (
        SELECT a.id, a.archived_xid, a.xid, a.seq, a.archived_at, a.replay_of, a.result
        FROM @schema@.queue_message_archive a
        WHERE a.archived_xid >= after_archived_xid
          AND (a.archived_xid, a.xid, a.seq) > (after_archived_xid, after_xid, after_seq)
          AND a.archived_at >= coalesce(archived_from, '-infinity') AND a.archived_at < coalesce(archived_to, 'infinity')
          AND (queue_message_find.exchange IS NULL OR a.exchange = queue_message_find.exchange)
          AND (queue_message_find.routing_key IS NULL OR a.routing_key LIKE
               replace(replace(replace(replace(queue_message_find.routing_key, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_'), '*', '%'))
          AND (queue_message_find.result IS NULL OR a.result = queue_message_find.result)
          AND (queue_message_find.error_code IS NULL OR a.error_code = queue_message_find.error_code)
          AND (queue_message_find.result IS NOT NULL OR queue_message_find.error_code IS NOT NULL
               OR coalesce(a.error_code, '') <> ALL ('{cancelled,superseded,bundled}'))
        ORDER BY a.archived_xid, a.xid, a.seq
        OFFSET 0
    ) a
    WHERE (again
          -- With the same id a replay is no replay of itself.
          OR (NOT EXISTS (SELECT FROM @schema@.queue_message_archive r
                          WHERE r.replay_of = a.id AND (r.id <> a.id OR r.archived_at > a.archived_at))
              AND a.id NOT IN (SELECT @schema@.queue_message_waiting_replays())
              -- The look by itself is a tenth of what the function costs.
              OR EXISTS (SELECT FROM @schema@.queue_message_audit n WHERE n.action = 'replay' AND n.subject = a.id::text
                         AND n.became ->> 'place' <> format('%s/%s', a.xid, a.seq))
                  AND @schema@.queue_message_replayed_elsewhere(a.id, a.xid, a.seq))
          AND (a.replay_of IS NULL OR a.result <> 'success'
               OR NOT @schema@.queue_message_repeats(a.replay_of, a.archived_at, queue_message_find.result, queue_message_find.error_code)))
      AND (queue_message_find.job IS NULL
           OR NOT EXISTS (SELECT FROM @schema@.queue_message_replay_ledger l WHERE (l.job, l.xid, l.seq) = (queue_message_find.job, a.xid, a.seq))
          AND NOT EXISTS (SELECT FROM @schema@.queue_message_replay_ledger l
                          WHERE l.id = a.id AND l.job = queue_message_find.job AND a.replay_of IS NOT NULL))
    ORDER BY a.archived_xid, a.xid, a.seq
    LIMIT most;
END
$body$;

-- As before, but of dead messages that another cluster archived only those that were here when the lake was verified: those that came with a later dump
-- nobody has compared. A mark of another cluster, in a dump of its tables, says nothing of them.
CREATE OR REPLACE FUNCTION @schema@.queue_message_delete_dead(archived_before timestamptz, exported boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    deleted bigint;
    seen text := @schema@.queue_message_lake_seen();
BEGIN
    -- Not a SET clause of the function: only a superuser may write one for a name that no extension has declared.
    PERFORM set_config('relay.retention', 'on', true);
    WITH old AS (
        SELECT d.ctid AS place FROM @schema@.queue_message_dead d
        WHERE d.archived_at < archived_before
          AND (NOT exported OR EXISTS (SELECT FROM @schema@.queue_message_export e
              WHERE e.partition = 'queue_message_dead' AND e.verified_at IS NOT NULL AND e.lake = seen
                AND (d.archived_xid < e.exported_xid
                    OR d.archived_xid >= pg_snapshot_xmax(pg_current_snapshot()) AND e.exported_xid < pg_snapshot_xmax(pg_current_snapshot())
                    AND age(d.xmin) > age(e.exported_xid::xid)))
              AND NOT EXISTS (SELECT FROM @schema@.queue_message_export e WHERE e.damage IS NOT NULL))
        ORDER BY d.archived_at LIMIT 5000
    ), gone AS (
        DELETE FROM @schema@.queue_message_dead d USING old WHERE d.ctid = old.place RETURNING d.xid, d.seq
    ), answers AS (
        DELETE FROM @schema@.queue_message_dead_ack a USING gone WHERE (a.xid, a.seq) = (gone.xid, gone.seq)
    )
    SELECT count(*) INTO deleted FROM gone;
    PERFORM set_config('relay.retention', 'off', true);
    RETURN deleted;
END
$body$;
