-- COPY with the encoding SQL_ASCII stores whatever bytes it is given, in a database in UTF8 too, where PostgreSQL checks nothing any more when it
-- hands them out. One such message stopped a relay. convert_to() checks its argument, and fails with SQLSTATE 22021: as the condition of a trigger
-- it costs an INSERT about a microsecond. In databases of other encodings the triggers of 0053 do the same.
DO $do$
DECLARE
    guarded record;
BEGIN
    IF getdatabaseencoding() <> 'UTF8' THEN
        RETURN;
    END IF;
    FOR guarded IN SELECT * FROM (VALUES
        ('queue_message', '{exchange,routing_key,ordering_key}'::text[], '{options,content}'::text[]),
        ('queue_message_keyed_row', '{exchange,routing_key,ordering_key,bundle_key,coalesce_key}', '{options,content}'),
        ('queue_message_dedup', '{exchange,dedup_key}', '{}'),
        ('queue_message_received', '{consumer,message_id}', '{}'),
        ('queue_message_receipt', '{queue,consumer}', '{}')) AS given (name, texts, documents)
    LOOP
        EXECUTE format('CREATE TRIGGER queue_message_bytes AFTER INSERT ON %1$I.%2$I FOR EACH ROW
            WHEN (pg_catalog.convert_to(pg_catalog.concat_ws('''', %3$s), ''UTF8'') IS NULL%4$s)
            EXECUTE FUNCTION %1$I.queue_message_letters_check(%5$s)',
            @schema_literal@::text, guarded.name,
            (SELECT string_agg(format('NEW.%I', c), ', ') FROM unnest(guarded.texts) AS c),
            (SELECT coalesce(string_agg(format(' OR pg_catalog.convert_to(NEW.%I::pg_catalog.text, ''UTF8'') IS NULL', c), ''), '')
             FROM unnest(guarded.documents) AS c),
            (SELECT string_agg(quote_literal(c), ', ') FROM unnest(guarded.texts || guarded.documents) AS c));
    END LOOP;
END
$do$;

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
