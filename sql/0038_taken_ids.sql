-- A row that somebody inserts with the id of a message under a key neither keeps that message from being sent nor holds up the fold, and is not
-- taken for what was sent under the key.

-- The number in the queue of what was sent last: an id may be used again, by anybody, a number may not.
ALTER TABLE @schema@.queue_message_coalesced ADD COLUMN queue_seq bigint;
UPDATE @schema@.queue_message_coalesced c SET queue_seq = m.seq FROM @schema@.queue_message m WHERE m.id = c.message_id;

-- Others than who may read the table see only what their own transaction has inserted: an id that nobody knows cannot be taken.
CREATE OR REPLACE VIEW @schema@.queue_message_keyed AS
    SELECT k.id, k.exchange, k.routing_key, CASE WHEN k.bundle_key IS NULL THEN k.content ELSE k.content -> 0 END AS content, k.body, k.options,
        k.ordering_key, k.available_at, k.expires_at, k.bundle_key, k.coalesce_key, NULL::text AS dedup_key, NULL::integer AS dedup_seconds
    FROM @schema@.queue_message_keyed_row k
    WHERE k.xid = pg_current_xact_id_if_assigned() OR has_table_privilege(k.tableoid, 'SELECT');

-- Sends what waits under a key as it stands, and returns the id and the number with which it did. The id is a new one where a row of the queue
-- has its own, or a transaction that has not ended inserts such a row: to wait for it would hold up all keys. Null where the queue refuses
-- the message today: then it is dead, with the reason.
DROP FUNCTION @schema@.queue_message_keyed_send(bigint);
CREATE FUNCTION @schema@.queue_message_keyed_send(place bigint, OUT sent uuid, OUT number bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $body$
#variable_conflict use_variable
DECLARE
    own uuid := (SELECT k.id FROM @schema@.queue_message_keyed_row k WHERE k.seq = place);
    refusal text;
BEGIN
    sent := own;
    LOOP
        BEGIN
            INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at,
                created_at, replay_of)
            SELECT sent, k.exchange, k.routing_key, k.content, k.body, k.options, k.ordering_key, k.available_at, k.expires_at, k.created_at,
                nullif(own, sent)
            FROM @schema@.queue_message_keyed_row k WHERE k.seq = place
            RETURNING queue_message.seq INTO number;
            EXIT;
        EXCEPTION WHEN OTHERS THEN
            refusal := @schema@.queue_message_refusal(SQLSTATE, SQLERRM);
            IF sent = own AND SQLSTATE IN ('23505', '55P03') THEN
                sent := @schema@.queue_message_uuid();
            ELSIF refusal IS NULL THEN
                RAISE;
            ELSE
                PERFORM @schema@.queue_message_keyed_archive(ARRAY[place], 'rejected', 'refused', refusal, 'fold');
                sent := NULL;
                RETURN;
            END IF;
        END;
    END LOOP;
    IF sent = own THEN
        DELETE FROM @schema@.queue_message_keyed_row k WHERE k.seq = place;
    ELSE
        PERFORM @schema@.queue_message_keyed_archive(ARRAY[place], 'discarded', 'superseded', format('replaced by %s', sent), 'fold');
    END IF;
END
$body$;

-- As before, but what was sent last is known by its number: another row with its id is left alone.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold_versions(due bigint[], clock timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    winner uuid;
    put record;
BEGIN
    FOR one IN
        SELECT k.exchange, k.coalesce_key, array_agg(k.seq ORDER BY k.seq DESC) AS seqs, (array_agg(k.id ORDER BY k.seq DESC))[1] AS id,
            min(last.message_id::text)::uuid AS last_id, min(last.queue_seq) AS last_number,
            coalesce(max(k.seq) < min(last.seq) AND max(k.created_at) <= min(last.folded_at), false) AS late
        FROM @schema@.queue_message_keyed_row k LEFT JOIN @schema@.queue_message_coalesced last USING (exchange, coalesce_key)
        WHERE k.seq = ANY (due) GROUP BY k.exchange, k.coalesce_key ORDER BY max(k.seq)
    LOOP
        winner := CASE WHEN one.late THEN one.last_id ELSE one.id END;
        PERFORM @schema@.queue_message_keyed_archive(CASE WHEN one.late THEN one.seqs ELSE one.seqs[2:] END,
            'discarded', 'superseded', format('replaced by %s', winner), 'fold');
        CONTINUE WHEN one.late;
        PERFORM @schema@.queue_message_take_out(
            one.last_id, 'discarded', 'superseded', format('replaced by %s', winner), 'fold', patient => false)
        WHERE EXISTS (SELECT FROM @schema@.queue_message m WHERE (m.id, m.seq) = (one.last_id, one.last_number));
        SELECT s.sent, s.number INTO put FROM @schema@.queue_message_keyed_send(one.seqs[1]) s;
        CONTINUE WHEN put.sent IS NULL;
        INSERT INTO @schema@.queue_message_coalesced (exchange, coalesce_key, message_id, queue_seq, seq, folded_at)
        VALUES (one.exchange, one.coalesce_key, put.sent, put.number, one.seqs[1], greatest(clock, clock_timestamp()))
        ON CONFLICT ON CONSTRAINT queue_message_coalesced_pkey DO UPDATE
        SET message_id = excluded.message_id, queue_seq = excluded.queue_seq, seq = excluded.seq, folded_at = excluded.folded_at;
    END LOOP;
END
$body$;
