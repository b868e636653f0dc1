-- Letters that UTF-8 lacks. The encodings of some databases have a few (byte 81 of WIN1252, rows of EUC_JP that makers of computers used),
-- and PostgreSQL gives a client that reads UTF-8, as a relay is, an error in place of every row of a statement that meets one. An INSERT refuses
-- them, a claim that meets one that is there already has it archived, and the archive writes them in ASCII. In a database in UTF8 there is
-- none, and the triggers are not made there.

CREATE FUNCTION @schema@.queue_message_unwritable(what text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT what || ' holds a letter that UTF-8 lacks, in which messages are sent: leave it out, or write another.'
$body$;

-- Converts what a client would be handed; an error says that it cannot be.
CREATE FUNCTION @schema@.queue_message_to_utf8(exchange text, routing_key text, ordering_key text, content jsonb, options jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM convert_to(concat_ws(' ', exchange, routing_key, ordering_key), 'UTF8'), convert_to(options::text, 'UTF8'),
        convert_to(content::text, 'UTF8');
END
$body$;

-- The same text with the bytes of each letter that UTF-8 lacks in its place, as <81>, which JSON allows too.
CREATE FUNCTION @schema@.queue_message_legible(words text) RETURNS text
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

-- Names the column whose text no relay could read; arguments: the columns. AFTER, so that nothing changes the row behind it.
CREATE FUNCTION @schema@.queue_message_letters_check() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY TG_ARGV LOOP
        EXECUTE format('SELECT convert_to(($1).%I::text, ''UTF8'')', name) USING NEW;
    END LOOP;
    RETURN NULL;
EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = @schema@.queue_message_unwritable(name), TABLE = TG_TABLE_NAME,
        COLUMN = name, CONSTRAINT = 'queue_message_letters';
END
$body$;

-- Whatever archives a message, and whyever: what is kept can be read, exported and shown. It is another text then, so its code is the one
-- of what no replay sends again.
CREATE FUNCTION @schema@.queue_message_letters_archive() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM @schema@.queue_message_to_utf8(NEW.exchange, NEW.routing_key, NEW.ordering_key, NEW.content, NEW.options);
    PERFORM convert_to(concat_ws(' ', NEW.error_code, NEW.error_detail, NEW.handled_by), 'UTF8');
    RETURN NEW;
EXCEPTION
    WHEN program_limit_exceeded THEN RETURN NEW;
    WHEN untranslatable_character OR character_not_in_repertoire THEN
        NEW.exchange := @schema@.queue_message_legible(NEW.exchange);
        NEW.routing_key := @schema@.queue_message_legible(NEW.routing_key);
        NEW.ordering_key := @schema@.queue_message_legible(NEW.ordering_key);
        NEW.options := @schema@.queue_message_legible(NEW.options::text)::jsonb;
        NEW.content := @schema@.queue_message_legible(NEW.content::text)::jsonb;
        NEW.error_code := 'content_unprintable';
        NEW.error_detail := @schema@.queue_message_legible(coalesce(NEW.error_detail, @schema@.queue_message_unwritable('the message')));
        NEW.handled_by := @schema@.queue_message_legible(NEW.handled_by);
        RETURN NEW;
END
$body$;

-- As before, and past what holds a letter that UTF-8 lacks.
CREATE OR REPLACE FUNCTION @schema@.queue_message_reject_unprintable(most integer DEFAULT 20000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    begun record;
    one record;
    last record;
    walked integer := 0;
    rejected bigint := 0;
    foreign_letters boolean := getdatabaseencoding() <> 'UTF8';
BEGIN
    SELECT w.xid, w.seq INTO begun FROM @schema@.queue_message_walk w WHERE w.name = 'reject_unprintable' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    FOR one IN
        (SELECT m.xid, m.seq, m.id, m.exchange, m.routing_key, m.content, m.options, m.ordering_key, m.lock_expires_at, false AS page FROM @schema@.queue_message m
         WHERE m.available_at <= now() ORDER BY m.available_at LIMIT most)
        UNION ALL
        SELECT next.* FROM @schema@.queue_message_claim_places() AS place (xid, seq) CROSS JOIN LATERAL (
            SELECT m.xid, m.seq, m.id, m.exchange, m.routing_key, m.content, m.options, m.ordering_key, m.lock_expires_at, false FROM @schema@.queue_message m
            WHERE (m.xid, m.seq) > (place.xid, place.seq) ORDER BY m.xid, m.seq LIMIT most) next
        UNION ALL
        (SELECT m.xid, m.seq, m.id, m.exchange, m.routing_key, m.content, m.options, m.ordering_key, m.lock_expires_at, true FROM @schema@.queue_message m
         WHERE (m.xid, m.seq) > (begun.xid, begun.seq) ORDER BY m.xid, m.seq LIMIT most)
    LOOP
        IF one.page THEN
            walked := walked + 1;
            last := one;
        END IF;
        CONTINUE WHEN one.lock_expires_at IS NOT NULL;
        BEGIN
            PERFORM octet_length(one.content::text);
            IF foreign_letters THEN
                PERFORM @schema@.queue_message_to_utf8(one.exchange, one.routing_key, one.ordering_key, one.content, one.options);
            END IF;
        EXCEPTION WHEN program_limit_exceeded THEN
            rejected := rejected + @schema@.queue_message_archive_now(
                ARRAY[one.id], 'rejected', 'content_unprintable', 'content is larger than a gigabyte as text: write its numbers shorter.', 'relay');
        WHEN untranslatable_character OR character_not_in_repertoire THEN
            rejected := rejected + @schema@.queue_message_archive_now(
                ARRAY[one.id], 'rejected', 'content_unprintable', @schema@.queue_message_unwritable('the message'), 'relay');
        END;
    END LOOP;
    IF walked < most THEN
        UPDATE @schema@.queue_message_walk w SET xid = '0', seq = 0 WHERE w.name = 'reject_unprintable';
    ELSE
        UPDATE @schema@.queue_message_walk w SET xid = last.xid, seq = last.seq WHERE w.name = 'reject_unprintable';
    END IF;
    RETURN rejected;
END
$body$;

-- As before, and each minute some messages are tried that no claim meets yet: whoever looks at one of them would get an error.
CREATE OR REPLACE FUNCTION @schema@.queue_message_sweep_minute(now timestamptz DEFAULT NULL, OUT released bigint, OUT archived bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    most constant integer := 100000;
    at_once constant integer := 10000;
    begun record;
    page record;
    near record;
BEGIN
    released := 0;
    archived := 0;
    SELECT w.xid, w.seq INTO begun FROM @schema@.queue_message_walk w WHERE w.name = 'sweep' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM @schema@.queue_message_note_clock(clock);
    SELECT * INTO page FROM @schema@.queue_message_sweep_page(begun.xid, begun.seq, most, clock);
    -- What is found beyond as many as go at once begins the next page.
    IF cardinality(page.xids) > at_once THEN
        page.end_xid := page.xids[at_once];
        page.end_seq := page.seqs[at_once];
        page.xids := page.xids[:at_once];
        page.seqs := page.seqs[:at_once];
    END IF;
    IF begun.xid > '0' OR page.end_xid IS NOT NULL THEN
        SELECT * INTO near FROM @schema@.queue_message_sweep_near(clock);
        page.xids := page.xids || near.xids;
        page.seqs := page.seqs || near.seqs;
    END IF;
    SELECT f.released, f.archived INTO released, archived FROM @schema@.queue_message_free_expired(page.xids, page.seqs, now) f;
    UPDATE @schema@.queue_message_walk w SET xid = coalesce(page.end_xid, '0'), seq = coalesce(page.end_seq, 0) WHERE w.name = 'sweep';
    IF getdatabaseencoding() <> 'UTF8' THEN
        PERFORM @schema@.queue_message_reject_unprintable(5000);
    END IF;
END
$body$;

-- As before, and what a trigger of the application's says can be read in UTF-8.
CREATE OR REPLACE FUNCTION @schema@.queue_message_claim_one(
    at_xid xid8, at_seq bigint, until timestamptz, token uuid, holder integer, OUT attempts integer, OUT state text, OUT words text)
LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
BEGIN
    UPDATE @schema@.queue_message m
    SET lock_expires_at = until, lock_token = token, locked_by = holder, attempts = m.attempts OPERATOR(pg_catalog.+) 1
    WHERE m.xid OPERATOR(pg_catalog.=) at_xid AND m.seq OPERATOR(pg_catalog.=) at_seq
    RETURNING m.attempts INTO attempts;
    IF attempts IS NULL THEN
        state := '';
    END IF;
EXCEPTION WHEN OTHERS THEN
    IF pg_catalog.starts_with(SQLSTATE, '42') OR @schema@.queue_message_meets_all(SQLSTATE, '', '') THEN
        RAISE;
    END IF;
    attempts := NULL;
    state := SQLSTATE;
    words := pg_catalog.left(SQLERRM, 1000);
    BEGIN
        PERFORM pg_catalog.convert_to(words, 'UTF8');
    EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
        words := pg_catalog.regexp_replace(words, E'[^\\x01-\\x7f]', '?', 'g');
    END;
END
$body$;

-- What was found to be unprintable is not sent again, for either reason.
CREATE OR REPLACE FUNCTION @schema@.queue_message_refuse_unprintable(message uuid) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT @schema@.queue_message_refuse_new(message, 'content', 'its content is larger than a gigabyte as text'
        || CASE WHEN pg_catalog.getdatabaseencoding() <> 'UTF8' THEN ', or it held letters that UTF-8 lacks' ELSE '' END
        || '; write its numbers as strings'
        || CASE WHEN pg_catalog.getdatabaseencoding() <> 'UTF8' THEN ' and other letters' ELSE '' END || ' and insert it anew.')
$body$;

-- Archives what no client can read and is in the queue, and puts what is in the archive already there anew, past the trigger above; returns
-- how many. For rows that are older than the triggers, or came in beside them. Only the owner may.
CREATE FUNCTION @schema@.queue_message_mend_letters() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    mended bigint := @schema@.queue_message_reject_unprintable(2147483647);
    retention text := coalesce(current_setting('relay.retention', true), '');
BEGIN
    PERFORM set_config('relay.retention', 'on', true);
    FOR one IN SELECT a.tableoid, a.ctid, a.* FROM @schema@.queue_message_archive a LOOP
        BEGIN
            PERFORM @schema@.queue_message_to_utf8(one.exchange, one.routing_key, one.ordering_key, one.content, one.options);
            PERFORM convert_to(concat_ws(' ', one.error_code, one.error_detail, one.handled_by), 'UTF8');
        EXCEPTION
            WHEN program_limit_exceeded THEN NULL;
            WHEN untranslatable_character OR character_not_in_repertoire THEN
                WITH gone AS (
                    DELETE FROM @schema@.queue_message_archive a WHERE a.tableoid = one.tableoid AND a.ctid = one.ctid RETURNING a.*
                ) INSERT INTO @schema@.queue_message_archive SELECT g.* FROM gone g;
                mended := mended + 1;
        END;
    END LOOP;
    PERFORM set_config('relay.retention', retention, true);
    RETURN mended;
END
$body$;

DO $do$
DECLARE
    guarded record;
BEGIN
    IF getdatabaseencoding() = 'UTF8' THEN
        RETURN;
    END IF;
    FOR guarded IN SELECT * FROM (VALUES
        ('queue_message', '{exchange,routing_key,ordering_key,options,content}'::text[]),
        ('queue_message_keyed_row', '{exchange,routing_key,ordering_key,bundle_key,coalesce_key,options,content}'),
        ('queue_message_dedup', '{exchange,dedup_key}'),
        ('queue_message_schedule', '{name,spec,time_zone,exchange,routing_key,ordering_key,options,content}'),
        ('queue_message_contract', '{exchange,routing_key,schema}'),
        ('queue_message_receipt', '{queue,consumer}'),
        ('queue_message_received', '{consumer,message_id}'),
        ('queue_message_pause', '{exchange,reason}'),
        ('queue_message_limit', '{exchange,reason}'),
        ('queue_message_key_hold', '{ordering_key,reason}'),
        ('queue_message_dead_ack', '{note}'),
        ('queue_message_setting', '{value}')) AS given (name, columns)
    LOOP
        EXECUTE format('CREATE TRIGGER queue_message_letters AFTER INSERT OR UPDATE OF %1$s ON %2$I.%3$I FOR EACH ROW
            EXECUTE FUNCTION %2$I.queue_message_letters_check(%4$s)',
            (SELECT string_agg(quote_ident(c), ', ') FROM unnest(guarded.columns) AS c), @schema_literal@::text, guarded.name,
            (SELECT string_agg(quote_literal(c), ', ') FROM unnest(guarded.columns) AS c));
    END LOOP;
    CREATE TRIGGER queue_message_letters BEFORE INSERT ON @schema@.queue_message_archive
        FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_letters_archive();
    PERFORM @schema@.queue_message_mend_letters();
END
$do$;
