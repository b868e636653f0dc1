-- An inbox is a queue of its own, in a schema of its own, that `relay receive` fills and workers empty: the setting `direction` says which it
-- is, so that nobody publishes what was received. Its tables, its locks and its archive are those of an outbox.

-- What waits in an inbox, as a person or a program without a worker would look at it.
CREATE VIEW @schema@.queue_message_inbox AS
SELECT id, exchange, routing_key, content, body, options -> 'headers' AS headers, options, created_at AS received_at, attempts, available_at,
    last_error
FROM @schema@.queue_message;
COMMENT ON VIEW @schema@.queue_message_inbox IS 'What was received and waits for a worker.';

-- A text of at most so many bytes: what is longer ends with a mark, and where it must stay one of its kind, with its hash.
CREATE FUNCTION @schema@.queue_message_cut(given text, most integer, hashed boolean DEFAULT false) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT CASE WHEN octet_length(given) <= most THEN given
        WHEN hashed THEN left(given, 30) || '... sha256:' || encode(sha256(convert_to(given, 'UTF8')), 'hex')
        ELSE left(given, (most - 3) / 4) || '...' END
$body$;

-- A delivery that can never be a message goes to the dead side at once, with its payload as it came and the reason; false where its queue
-- had brought it before. Definer's rights: whoever receives may not write the archive otherwise.
CREATE FUNCTION @schema@.queue_message_reject_delivery(
    queue text, message_id text, exchange text, routing_key text, payload bytea, code text, sentence text, handled_by text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    -- Whatever a client sent, the queue must be rid of it.
    message_id := @schema@.queue_message_cut(message_id, 255, hashed => true);
    exchange := @schema@.queue_message_cut(exchange, 255);
    routing_key := @schema@.queue_message_cut(routing_key, 255);
    sentence := @schema@.queue_message_cut(sentence, 4000);
    -- As with every delivery: it is acknowledged after the COMMIT.
    PERFORM set_config('synchronous_commit', 'on', true);
    INSERT INTO @schema@.queue_message_received (consumer, message_id) VALUES (queue, message_id) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, created_at, attempts,
        result, error_code, error_detail, handled_by)
    VALUES (pg_current_xact_id(), nextval(pg_get_serial_sequence(format('%I.queue_message', @schema_literal@::text), 'seq')),
        @schema@.queue_message_uuid(), exchange, routing_key, '{}', payload,
        jsonb_build_object('headers', jsonb_build_object('x-relay-queue', queue, 'x-relay-message-id', message_id)), now(), 0,
        'rejected', code, sentence, handled_by);
    RETURN true;
END
$body$;
