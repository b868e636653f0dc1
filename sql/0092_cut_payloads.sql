-- As before, but a payload of more than half a gigabyte is cut. While it was refused, the delivery blocked its queue for ever: RabbitMQ delivers up to
-- 512 MiB where max_message_size was raised. No message of so many bytes can be sent again, so nothing sends the part.
CREATE OR REPLACE FUNCTION @schema@.queue_message_reject_delivery(
    queue text, message_id text, exchange text, routing_key text, payload bytea, code text, sentence text, handled_by text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF octet_length(payload) > 500000000 THEN
        sentence := format('%s (the first 500000000 of %s bytes are kept)', @schema@.queue_message_cut(sentence, 3900), octet_length(payload));
        payload := substr(payload, 1, 500000000);
    END IF;
    -- Whatever a client sent, the queue must be rid of it.
    queue := @schema@.queue_message_cut(queue, 255, hashed => true);
    message_id := @schema@.queue_message_cut(message_id, 255, hashed => true);
    exchange := @schema@.queue_message_cut(exchange, 255);
    routing_key := @schema@.queue_message_cut(routing_key, 255);
    code := @schema@.queue_message_cut(code, 63);
    sentence := @schema@.queue_message_cut(sentence, 4000);
    handled_by := @schema@.queue_message_cut(handled_by, 255);
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
    PERFORM @schema@.queue_message_none_skipped('queue_message_archive', 1, FOUND::integer);
    RETURN true;
END
$body$;

-- Texts that a relay's login writes, and that operators' commands read: one of a gigabyte filled the memory of `relay status` and `relay show`.
ALTER TABLE @schema@.queue_message_relay ADD CONSTRAINT queue_message_relay_texts_check
    CHECK (@schema@.queue_message_check_size('name', greatest(octet_length(name), octet_length(version), octet_length(host)), 4096)) NOT VALID;
