-- COPY with the encoding SQL_ASCII stores whatever bytes it is given, and PostgreSQL checks nothing any more when it hands them out. One such message
-- stopped a relay. convert_to() checks its argument, also where there is nothing to convert, and fails with SQLSTATE 22021.

CREATE FUNCTION @schema@.queue_message_bytes() RETURNS trigger
LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM pg_catalog.convert_to(NEW.exchange || NEW.routing_key || coalesce(NEW.ordering_key, ''), pg_catalog.getdatabaseencoding()),
        pg_catalog.convert_to(NEW.options::pg_catalog.text, pg_catalog.getdatabaseencoding()),
        pg_catalog.convert_to(NEW.content::pg_catalog.text, pg_catalog.getdatabaseencoding());
    RETURN NULL;
END
$body$;

-- The same of what has only short texts.
CREATE FUNCTION @schema@.queue_message_short_bytes() RETURNS trigger
LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM pg_catalog.convert_to(NEW::pg_catalog.text, pg_catalog.getdatabaseencoding());
    RETURN NULL;
END
$body$;

-- The same of the keys that a queued message has no more.
CREATE FUNCTION @schema@.queue_message_keyed_bytes() RETURNS trigger
LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM pg_catalog.convert_to(coalesce(NEW.coalesce_key, NEW.bundle_key), pg_catalog.getdatabaseencoding());
    RETURN NULL;
END
$body$;

CREATE TRIGGER queue_message_bytes AFTER INSERT ON @schema@.queue_message
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_bytes();
CREATE TRIGGER queue_message_bytes AFTER INSERT ON @schema@.queue_message_keyed_row
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_bytes();
CREATE TRIGGER queue_message_keyed_bytes AFTER INSERT ON @schema@.queue_message_keyed_row
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_keyed_bytes();
CREATE TRIGGER queue_message_bytes AFTER INSERT ON @schema@.queue_message_dedup
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_short_bytes();
CREATE TRIGGER queue_message_bytes AFTER INSERT ON @schema@.queue_message_received
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_short_bytes();
CREATE TRIGGER queue_message_bytes AFTER INSERT ON @schema@.queue_message_receipt
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_short_bytes();

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
