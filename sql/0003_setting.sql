-- Policy: one row per setting, refused with a sentence where its value makes no sense.

-- Every setting with its value on a new database. kind: integer, number, word (one of words), policy (unroutable).
CREATE FUNCTION @schema@.queue_message_setting_rule()
RETURNS TABLE (name text, fallback text, kind text, low numeric, high numeric, words text[])
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    VALUES
        ('max_attempts',        '12',       'integer', 1,    1000000,   NULL::text[]),
        ('backoff_base',        '1',        'number',  0,    86400,     NULL),
        ('backoff_max',         '600',      'number',  0,    604800,    NULL),
        ('lock_seconds',        '30',       'number',  1,    86400,     NULL),
        ('max_body_bytes',      '16777216', 'integer', 1,    134217728, NULL),
        -- Days; 0 keeps for ever.
        ('retention_days',      '30',       'integer', 0,    36500,     NULL),
        ('dead_retention_days', '365',      'integer', 0,    36500,     NULL),
        ('received_retention_days', '30',   'integer', 0,    36500,     NULL),
        -- Keyed messages (0021): how long a dedup_key is known, how long a bundle collects, and what one holds at the most.
        ('dedup_seconds',       '86400',    'integer', 1,    31536000,  NULL),
        ('bundle_seconds',      '1',        'number',  0,    86400,     NULL),
        ('bundle_max_messages', '1000',     'integer', 1,    10000,     NULL),
        ('bundle_max_bytes',    '1048576',  'integer', 1,    134217728, NULL),
        ('unroutable',          'retry',    'policy',  NULL, NULL,      ARRAY['retry', 'reject', 'accept']),
        ('on_dead_key',         'continue', 'word',    NULL, NULL,      ARRAY['continue', 'park']),
        ('on_lock_expired',     'retry',    'word',    NULL, NULL,      ARRAY['retry', 'archive']),
        ('archive',             'all',      'word',    NULL, NULL,      ARRAY['all', 'failures']),
        ('notify',              'idle',     'word',    NULL, NULL,      ARRAY['idle', 'always', 'off']),
        -- inbox: what is here was received; workers handle it, and no relay publishes it.
        ('direction',           'outbox',   'word',    NULL, NULL,      ARRAY['outbox', 'inbox']),
        -- true: a day of the archive is dropped only after its export was verified.
        ('export_registered',   'false',    'word',    NULL, NULL,      ARRAY['true', 'false'])
$body$;

-- What holds for a setting now: its row, else the value of a new database.
CREATE FUNCTION @schema@.queue_message_setting_value(setting text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $body$
    SELECT coalesce(
        (SELECT s.value FROM @schema@.queue_message_setting s WHERE s.name = queue_message_setting_value.setting),
        (SELECT r.fallback FROM @schema@.queue_message_setting_rule() r WHERE r.name = queue_message_setting_value.setting))
$body$;

-- NULL where the value is fine, else the sentence.
CREATE FUNCTION @schema@.queue_message_setting_error(setting text, value text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $body$
#variable_conflict use_variable
DECLARE
    rule record;
    one text;
    fine boolean;
BEGIN
    SELECT * INTO rule FROM @schema@.queue_message_setting_rule() r WHERE r.name = setting;
    IF rule.name IS NULL THEN
        RETURN format('There is no setting "%s"; there are %s.', setting,
                      (SELECT string_agg(r.name, ', ' ORDER BY r.name) FROM @schema@.queue_message_setting_rule() r));
    ELSIF rule.kind IN ('integer', 'number') THEN
        fine := value ~ CASE rule.kind WHEN 'integer' THEN '^[0-9]{1,9}$' ELSE '^[0-9]{1,9}([.][0-9]{1,6})?$' END;
        IF NOT fine OR value::numeric NOT BETWEEN rule.low AND rule.high THEN
            RETURN format('Setting "%s" is "%s"; it must be %s from %s to %s.', setting, value,
                          CASE rule.kind WHEN 'integer' THEN 'a whole number' ELSE 'a number' END, rule.low, rule.high);
        END IF;
    ELSIF rule.kind = 'word' AND value <> ALL (rule.words) THEN
        RETURN format('Setting "%s" is "%s"; it must be one of %s.', setting, value, array_to_string(rule.words, ', '));
    ELSIF rule.kind = 'policy' THEN
        one := format('([^,=]*=)?(%s)', array_to_string(rule.words, '|'));
        IF value !~ format('^%s(,%s)*$', one, one) THEN
            RETURN format('Setting "%s" is "%s"; it must be one of %s, or a list such as retry,audit=accept.',
                          setting, value, array_to_string(rule.words, ', '));
        ELSIF EXISTS (SELECT FROM unnest(string_to_array(value, ',')) AS part GROUP BY CASE WHEN part ~ '=' THEN split_part(part, '=', 1) END HAVING count(DISTINCT part) > 1) THEN
            RETURN format('Setting "%s" is "%s"; it says two things of the same exchange, or has two defaults.', setting, value);
        END IF;
    END IF;
    RETURN NULL;
END
$body$;

CREATE FUNCTION @schema@.queue_message_setting_check() RETURNS trigger LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
DECLARE
    sentence text := @schema@.queue_message_setting_error(NEW.name, NEW.value);
BEGIN
    IF sentence IS NOT NULL THEN
        RAISE EXCEPTION '%', sentence USING ERRCODE = 'check_violation', TABLE = 'queue_message_setting', COLUMN = 'value';
    END IF;
    NEW.changed_at := now();
    RETURN NEW;
END
$body$;

CREATE TRIGGER queue_message_setting_check BEFORE INSERT OR UPDATE ON @schema@.queue_message_setting
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_setting_check();
