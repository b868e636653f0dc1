-- What consumers have handled, so that a message that comes again changes nothing a second time.

-- Written by the consumer, in the transaction in which it handles the message: the mark and the work are there together or not at all.
-- message_id is the header x-relay-id.
CREATE TABLE @schema@.queue_message_received (
    consumer    text        NOT NULL,
    message_id  text        NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id)
);
-- For retention, which looks for the oldest.
CREATE INDEX queue_message_received_received_at_idx ON @schema@.queue_message_received (received_at);

COMMENT ON TABLE @schema@.queue_message_received IS 'Messages that consumers have handled: one row for each consumer and message.';

-- Deletes up to 50,000 marks that are older than received_retention_days, the oldest first; called by queue_message_retain().
CREATE FUNCTION @schema@.queue_message_delete_received(clock timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    days integer := @schema@.queue_message_setting_value('received_retention_days')::integer;
    deleted bigint := 0;
BEGIN
    IF days > 0 THEN
        -- Two that delete at the same time take different ones: the caller waits for no lock longer than 200 ms.
        DELETE FROM @schema@.queue_message_received r WHERE r.ctid = ANY (ARRAY(
            SELECT old.ctid FROM @schema@.queue_message_received old WHERE old.received_at < clock - make_interval(days => days)
            ORDER BY old.received_at LIMIT 50000 FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS deleted = ROW_COUNT;
    END IF;
    RETURN deleted;
END
$body$;
