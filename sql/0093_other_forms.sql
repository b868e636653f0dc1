-- As before, and refuses a text that PostgreSQL does not give back as it was. EUC_JP and EUC_TW have letters of two byte forms that are one letter in
-- UTF-8: a relay asked for the other form of an ordering key, and never found the message; pauses and limits missed such an exchange. Nothing is looked
-- for by contents and options, which may have both forms.
CREATE OR REPLACE FUNCTION @schema@.queue_message_letters_check() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    name text;
    same boolean;
BEGIN
    FOREACH name IN ARRAY TG_ARGV LOOP
        EXECUTE format('SELECT CASE WHEN pg_typeof(($1).%1$I) = ''text''::regtype
            THEN convert_from(convert_to(($1).%1$I::text, ''UTF8''), ''UTF8'') = ($1).%1$I::text COLLATE "C"
            ELSE convert_to(($1).%1$I::text, ''UTF8'') IS NOT NULL END', name) INTO same USING NEW;
        IF NOT same THEN
            RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, COLUMN = name, CONSTRAINT = 'queue_message_letters',
                MESSAGE = name || ' holds a letter in bytes that PostgreSQL gives back as others: write it as a client in UTF-8 does.';
        END IF;
    END LOOP;
    RETURN NULL;
EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = @schema@.queue_message_unwritable(name), TABLE = TG_TABLE_NAME,
        COLUMN = name, CONSTRAINT = 'queue_message_letters';
END
$body$;

-- As before, but a part of a bundle counts as large too if its text has 16 times its bytes, as numbers with exponents have. A bundle of these is
-- divided again and again until the queue takes it: 10,000 parts of 15 kB held up all small keys for half a minute.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_measure() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    NEW.size := octet_length(NEW.content::text) + octet_length(NEW.options::text) + coalesce(octet_length(NEW.body), 0);
    NEW.large := NEW.size + 9 * octet_length(NEW.options::text) > 16384
        OR NEW.bundle_key IS NOT NULL AND octet_length(NEW.content::text) > 16 * pg_column_size(NEW.content);
    NEW.due_at := greatest(NEW.due_at, clock_timestamp());
    RETURN NEW;
END
$body$;
