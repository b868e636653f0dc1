-- Texts that a role may write into views, pages and metrics are as short as a person reads them: one of 200 MB for each of many rows made whoever
-- reads them take all the memory there was.
ALTER TABLE @schema@.queue_message_pause ADD CONSTRAINT queue_message_pause_reason_check
    CHECK (@schema@.queue_message_check_size('reason', octet_length(reason), 4000)) NOT VALID;
ALTER TABLE @schema@.queue_message_limit ADD CONSTRAINT queue_message_limit_reason_check
    CHECK (@schema@.queue_message_check_size('reason', octet_length(reason), 4000)) NOT VALID;
ALTER TABLE @schema@.queue_message_key_hold ADD CONSTRAINT queue_message_key_hold_reason_check
    CHECK (@schema@.queue_message_check_size('reason', octet_length(reason), 4000)) NOT VALID;
ALTER TABLE @schema@.queue_message_dead_ack ADD CONSTRAINT queue_message_dead_ack_note_check
    CHECK (@schema@.queue_message_check_size('note', octet_length(note), 4000)) NOT VALID;

-- As before, and code, queue and receiver are cut as well. What is refused for a letter of a name comes again with its code, which is longer.
CREATE OR REPLACE FUNCTION @schema@.queue_message_reject_delivery(
    queue text, message_id text, exchange text, routing_key text, payload bytea, code text, sentence text, handled_by text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
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

-- Whether the inbox takes a message just now: inserts one and takes it back. The locks, the triggers, the disk and the standbys that it and its COMMIT
-- wait for are those of a delivery.
CREATE FUNCTION @schema@.queue_message_try() RETURNS boolean LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
    INSERT INTO @schema@.queue_message (exchange) VALUES ('');
    RAISE EXCEPTION USING ERRCODE = 'QM000';
EXCEPTION WHEN SQLSTATE 'QM000' THEN
    RETURN true;
END
$body$;

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_65;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_65() p
    UNION ALL VALUES ('queue_message_receiver', 'EXECUTE ON FUNCTION %1$I.queue_message_try')
$body$;

-- A row that an application holds keeps no place of a worker: the attempt fails after a second, and the message comes again.
ALTER FUNCTION @schema@.queue_message_answer(uuid, uuid, jsonb, text[]) SET lock_timeout = '1s';

-- The place of a schedule's last message: its id may be another message's too, for producers choose theirs. Null until the next tick.
ALTER TABLE @schema@.queue_message_schedule ADD COLUMN last_xid xid8, ADD COLUMN last_seq bigint;

-- As before, by the place. A message of another cluster that was renumbered since is at none that a producer can have; before the first tick the
-- id is all there is.
CREATE OR REPLACE VIEW @schema@.queue_message_schedule_failing AS
    SELECT s.name, s.exchange, s.routing_key, s.last_at, coalesce('it sent nothing: ' || s.last_error,
        format('its last message is dead, %s%s%s', d.result, ' (' || d.error_code || ')', ': ' || d.error_detail)) AS why
    FROM @schema@.queue_message_schedule s LEFT JOIN LATERAL (
        SELECT d.result, d.error_code, d.error_detail FROM @schema@.queue_message_dead d
        WHERE d.id = s.last_id AND (s.last_xid IS NULL OR d.xid = '2' OR (d.xid, d.seq) = (s.last_xid, s.last_seq))
            AND NOT EXISTS (SELECT FROM @schema@.queue_message_dead_ack a WHERE (a.xid, a.seq) = (d.xid, d.seq))
        LIMIT 1) d ON true
    WHERE s.next_at IS NOT NULL AND (s.last_error IS NOT NULL OR d.result IS NOT NULL);

-- As before, and notes the place of what it sent last.
CREATE OR REPLACE FUNCTION @schema@.queue_message_schedule_due(one @schema@.queue_message_schedule, clock timestamptz, most int) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    tick timestamptz;
    following timestamptz := @schema@.queue_message_next_tick(
        one.spec, one.time_zone, one.next_at - interval '1 microsecond', one.created_at);
    made uuid;
    place record;
    inserted int := 0;
BEGIN
    WHILE following <= clock AND inserted < most LOOP
        tick := CASE one.missed WHEN 'all' THEN following
            ELSE @schema@.queue_message_last_tick(one.spec, one.time_zone, following, clock, one.created_at) END;
        IF one.missed <> 'skip' OR tick >= clock - interval '2 minutes' THEN
            made := @schema@.queue_message_schedule_send(one, tick, clock);
            inserted := inserted + 1;
        END IF;
        following := @schema@.queue_message_next_tick(one.spec, one.time_zone, tick, one.created_at);
    END LOOP;
    -- An id is once in the queue.
    SELECT m.xid, m.seq INTO place FROM @schema@.queue_message m WHERE m.id = made;
    UPDATE @schema@.queue_message_schedule s SET next_at = following,
        last_at = CASE WHEN inserted > 0 THEN tick ELSE s.last_at END, last_id = coalesce(made, s.last_id),
        last_xid = coalesce(place.xid, s.last_xid), last_seq = coalesce(place.seq, s.last_seq),
        last_error = CASE WHEN inserted > 0 THEN NULL ELSE s.last_error END
    WHERE s.name = one.name;
    RETURN inserted;
END
$body$;
