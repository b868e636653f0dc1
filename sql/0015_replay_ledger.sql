-- What a replay job has enqueued, so that a job that is run twice, or killed and run again, enqueues each message once; and what consumers
-- say they received, for the comparison with the archive.

-- Written in the transaction that enqueues. (xid, seq) is the archived message, id the new one. Rows stay: they are what makes a job final.
CREATE TABLE @schema@.queue_message_replay_ledger (
    job         text        NOT NULL CHECK (octet_length(job) BETWEEN 1 AND 255),
    xid         xid8        NOT NULL,
    seq         bigint      NOT NULL,
    id          uuid        NOT NULL,
    enqueued_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job, xid, seq)
);
-- Which job made this message? A job does not replay what it made itself.
CREATE INDEX queue_message_replay_ledger_id_idx ON @schema@.queue_message_replay_ledger (id);

COMMENT ON TABLE @schema@.queue_message_replay_ledger IS 'Messages that replay jobs enqueued: one row for each job and archived message.';

-- Enqueues messages as a lake holds them, in the order of the arrays, and returns what this call enqueued: what the ledger of the job has
-- is stepped over. They need not be in the archive any more; what still stands among the dead counts as answered. Refuses all if it refuses
-- one. A deadline that has passed is left out, or the new message would only be rejected as expired.
CREATE FUNCTION @schema@.queue_message_replay_rows(
    job text, xids xid8[], seqs bigint[], ids uuid[], exchanges text[], routing_keys text[], contents text[], bodies bytea[], options text[],
    ordering_keys text[], expires_ats timestamptz[], same_id boolean DEFAULT false
) RETURNS TABLE (xid xid8, seq bigint, replayed_as uuid)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    WITH given AS (
        SELECT DISTINCT ON (entry.xid, entry.seq) entry.*
        FROM unnest(xids, seqs, ids, exchanges, routing_keys, contents, bodies, options, ordering_keys, expires_ats) WITH ORDINALITY
            AS entry (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, expires_at, place)
        ORDER BY entry.xid, entry.seq, entry.place
    ), fresh AS (
        INSERT INTO @schema@.queue_message_replay_ledger AS ledger (job, xid, seq, id)
        SELECT queue_message_replay_rows.job, g.xid, g.seq, CASE WHEN same_id THEN g.id ELSE @schema@.queue_message_uuid() END
        FROM given g ORDER BY g.place
        ON CONFLICT DO NOTHING RETURNING ledger.xid, ledger.seq, ledger.id
    ), made AS (
        -- The numbers are taken after the sort.
        INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, expires_at, replay_of)
        SELECT f.id, g.exchange, g.routing_key, g.content::jsonb, g.body, g.options::jsonb, g.ordering_key,
            CASE WHEN g.expires_at > now() THEN g.expires_at END, g.id
        FROM fresh f JOIN given g ON (g.xid, g.seq) = (f.xid, f.seq)
        -- A lake has no content of what PostgreSQL could not print.
        WHERE g.content IS NOT NULL OR @schema@.queue_message_refuse_unprintable(g.id)
        ORDER BY g.place
    ), noted AS (
        INSERT INTO @schema@.queue_message_audit (action, subject, became)
        SELECT 'replay_job', queue_message_replay_rows.job, jsonb_build_object('messages', count(*)) FROM fresh HAVING count(*) > 0
    ), answered AS (
        INSERT INTO @schema@.queue_message_dead_ack (xid, seq, acknowledged_by, note)
        SELECT d.xid, d.seq, session_user, 'replayed as ' || f.id
        FROM fresh f JOIN given g ON (g.xid, g.seq) = (f.xid, f.seq)
            JOIN @schema@.queue_message_dead d ON d.id = g.id AND (d.xid, d.seq) = (g.xid, g.seq)
        ON CONFLICT DO NOTHING
    )
    SELECT f.xid, f.seq, f.id FROM fresh f JOIN given g ON (g.xid, g.seq) = (f.xid, f.seq) ORDER BY g.place
$body$;

-- What consumers say they received: message_id is the header x-relay-id. No key: that a message came twice is what it is there to show.
-- Time-ordered, so that a range is read without the rest.
CREATE TABLE @schema@.queue_message_receipt (
    message_id  uuid        NOT NULL,
    queue       text        NOT NULL DEFAULT '',
    received_at timestamptz NOT NULL DEFAULT now(),
    consumer    text        NOT NULL DEFAULT ''
);
-- Nor may a publication FOR ALL TABLES keep anybody from deleting them.
ALTER TABLE @schema@.queue_message_receipt REPLICA IDENTITY FULL;
CREATE INDEX queue_message_receipt_received_at_idx ON @schema@.queue_message_receipt (received_at);

COMMENT ON TABLE @schema@.queue_message_receipt IS 'What consumers say they received, to be compared with the archive; written by consumers.';
