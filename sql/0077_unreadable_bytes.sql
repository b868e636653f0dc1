-- Bytes that are no UTF-8, in a database in UTF8, are treated as letters that UTF-8 lacks are in others. Messages with such bytes are older than
-- migration 75, or came in while triggers were disabled.

-- As before, and in UTF8 of bytes.
CREATE OR REPLACE FUNCTION @schema@.queue_message_unwritable(what text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT what || CASE WHEN getdatabaseencoding() = 'UTF8' THEN ' holds bytes that are no UTF-8: write letters.'
        ELSE ' holds a letter that UTF-8 lacks, in which messages are sent: leave it out, or write another.' END
$body$;

-- As before. In UTF8 there is no letter to look for: each byte that is no ASCII is written as its number. Replacing octal numbers that follow a
-- backslash takes another way to write a backslash itself first.
CREATE OR REPLACE FUNCTION @schema@.queue_message_legible(words text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    letter text;
BEGIN
    BEGIN
        PERFORM convert_to(words, 'UTF8');
        RETURN words;
    EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN NULL;
    END;
    IF getdatabaseencoding() = 'UTF8' THEN
        words := replace(encode(replace(words COLLATE "C", E'\\', E'\\\\')::bytea, 'escape'), E'\\\\', E'\\s');
        FOR byte IN 128..255 LOOP
            words := replace(words, format(E'\\%s%s%s', byte >> 6, (byte >> 3) & 7, byte & 7), '<' || to_hex(byte) || '>');
        END LOOP;
        RETURN replace(words, E'\\s', E'\\');
    END IF;
    FOR letter IN SELECT DISTINCT one.letters[1] FROM regexp_matches(words COLLATE "C", E'[^\\x01-\\x7f]', 'g') AS one (letters) LOOP
        BEGIN
            PERFORM convert_to(letter, 'UTF8');
        EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
            words := replace(words COLLATE "C", letter, '<' || encode(letter::bytea, 'hex') || '>');
        END;
    END LOOP;
    RETURN words;
END
$body$;

-- As before, and says what it may have been in UTF8.
CREATE OR REPLACE FUNCTION @schema@.queue_message_refuse_unprintable(message uuid) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT @schema@.queue_message_refuse_new(message, 'content', 'its content is larger than a gigabyte as text, or it held '
        || CASE WHEN pg_catalog.getdatabaseencoding() <> 'UTF8' THEN 'letters that UTF-8 lacks' ELSE 'bytes that are no UTF-8' END
        || '; write its numbers as strings and other letters, and insert it anew.')
$body$;

-- As before, and what names hold bytes or letters that no relay can read is archived also if it is locked: no relay can have published it.
DROP FUNCTION @schema@.queue_message_reject_one(uuid, text, text, text, jsonb, jsonb);
CREATE FUNCTION @schema@.queue_message_reject_one(message uuid, exchange text, routing_key text, ordering_key text, content jsonb, options jsonb,
    locked boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM convert_to(concat_ws(' ', exchange, routing_key, ordering_key), 'UTF8');
    IF NOT locked THEN
        PERFORM convert_to(content::text, 'UTF8'), convert_to(options::text, 'UTF8');
    END IF;
    RETURN 0;
EXCEPTION WHEN program_limit_exceeded THEN
    RETURN @schema@.queue_message_archive_now(
        ARRAY[message], 'rejected', 'content_unprintable', 'content is larger than a gigabyte as text: write its numbers shorter.', 'relay');
WHEN untranslatable_character OR character_not_in_repertoire THEN
    RETURN @schema@.queue_message_archive_now(
        ARRAY[message], 'rejected', 'content_unprintable', @schema@.queue_message_unwritable('the message'), 'relay');
END
$body$;

-- As before, with what is locked.
CREATE OR REPLACE FUNCTION @schema@.queue_message_reject_near(most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    until constant timestamptz := clock_timestamp() + interval '1 s';
    begun constant bigint := (SELECT w.seq FROM @schema@.queue_message_walk w WHERE w.name = 'reject_unprintable near');
    one record;
    gone bigint;
    looked bigint := begun;
    skipped bigint := 0;
    rejected bigint := 0;
BEGIN
    FOR one IN SELECT near.* FROM (
        (SELECT m.id, m.exchange, m.routing_key, m.ordering_key, m.content, m.options, m.lock_expires_at FROM @schema@.queue_message m
         WHERE m.available_at <= now() ORDER BY m.available_at LIMIT most)
        UNION ALL
        SELECT next.* FROM @schema@.queue_message_claim_places() AS place (xid, seq) CROSS JOIN LATERAL (
            SELECT m.id, m.exchange, m.routing_key, m.ordering_key, m.content, m.options, m.lock_expires_at FROM @schema@.queue_message m
            WHERE (m.xid, m.seq) > (place.xid, place.seq) ORDER BY m.xid, m.seq LIMIT most) next
        ) near OFFSET begun
    LOOP
        gone := @schema@.queue_message_reject_one(
            one.id, one.exchange, one.routing_key, one.ordering_key, one.content, one.options, one.lock_expires_at IS NOT NULL);
        rejected := rejected + gone;
        -- What is gone stands before nothing any more.
        looked := looked + 1 - gone;
        IF clock_timestamp() >= until THEN
            skipped := looked;
            EXIT;
        END IF;
    END LOOP;
    UPDATE @schema@.queue_message_walk w SET seq = skipped WHERE w.name = 'reject_unprintable near' AND w.seq <> skipped;
    RETURN rejected;
END
$body$;

-- As before, with what is locked.
CREATE OR REPLACE FUNCTION @schema@.queue_message_reject_page(most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    until constant timestamptz := clock_timestamp() + interval '1 s';
    begun record;
    one record;
    last record;
    walked integer := 0;
    late boolean := false;
    rejected bigint := 0;
BEGIN
    SELECT w.xid, w.seq INTO begun FROM @schema@.queue_message_walk w WHERE w.name = 'reject_unprintable';
    FOR one IN
        SELECT m.xid, m.seq, m.id, m.exchange, m.routing_key, m.ordering_key, m.content, m.options, m.lock_expires_at FROM @schema@.queue_message m
        WHERE (m.xid, m.seq) > (begun.xid, begun.seq) ORDER BY m.xid, m.seq LIMIT most
    LOOP
        walked := walked + 1;
        last := one;
        rejected := rejected + @schema@.queue_message_reject_one(
            one.id, one.exchange, one.routing_key, one.ordering_key, one.content, one.options, one.lock_expires_at IS NOT NULL);
        late := clock_timestamp() >= until;
        EXIT WHEN late;
    END LOOP;
    IF late OR walked = most THEN
        UPDATE @schema@.queue_message_walk w SET xid = last.xid, seq = last.seq WHERE w.name = 'reject_unprintable';
    ELSE
        UPDATE @schema@.queue_message_walk w SET xid = '0', seq = 0 WHERE w.name = 'reject_unprintable';
    END IF;
    RETURN rejected;
END
$body$;

-- As before, in any encoding.
CREATE OR REPLACE FUNCTION @schema@.queue_message_mend_letters() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    mended bigint := 0;
    retention text := coalesce(current_setting('relay.retention', true), '');
BEGIN
    UPDATE @schema@.queue_message_walk w SET xid = '0', seq = 0 WHERE w.name = 'reject_unprintable';
    LOOP
        mended := mended + @schema@.queue_message_reject_page(2147483647);
        EXIT WHEN EXISTS (SELECT FROM @schema@.queue_message_walk w WHERE w.name = 'reject_unprintable' AND w.xid = '0');
    END LOOP;
    PERFORM set_config('relay.retention', 'on', true);
    FOR one IN SELECT a.tableoid, a.ctid, a.* FROM @schema@.queue_message_archive a LOOP
        BEGIN
            PERFORM @schema@.queue_message_to_utf8(one.exchange, one.routing_key, one.ordering_key, one.content, one.options);
            PERFORM convert_to(concat_ws(' ', one.error_code, one.error_detail, one.handled_by), 'UTF8');
        EXCEPTION
            WHEN program_limit_exceeded THEN NULL;
            WHEN untranslatable_character OR character_not_in_repertoire THEN
                WITH gone AS (
                    DELETE FROM @schema@.queue_message_archive a WHERE a.tableoid = one.tableoid AND a.ctid = one.ctid RETURNING a AS whole
                ) INSERT INTO @schema@.queue_message_archive
                SELECT (jsonb_populate_record(g.whole, '{"error_code": "content_unprintable"}')).* FROM gone g;
                mended := mended + 1;
        END;
    END LOOP;
    PERFORM set_config('relay.retention', retention, true);
    RETURN mended;
END
$body$;

-- What a relay sent or tried to send could be read, folds discard too much for a look at each row, and what is beyond a gigabyte takes seconds to
-- print once more. In other encodings there is a trigger for all rows.
DO $do$
BEGIN
    IF getdatabaseencoding() = 'UTF8' THEN
        CREATE TRIGGER queue_message_letters BEFORE INSERT ON @schema@.queue_message_archive FOR EACH ROW
            WHEN ((NEW.result IN ('rejected', 'lock_expired') OR NEW.error_code IN ('cancelled', 'content_unprintable'))
                AND NEW.error_detail IS DISTINCT FROM 'content is larger than a gigabyte as text: write its numbers shorter.')
            EXECUTE FUNCTION @schema@.queue_message_letters_archive();
    END IF;
END
$do$;
