-- Runs after the numbered migrations, each time; every step can be repeated.

-- Settings from the environment first, then what is still missing: a value that somebody changed stays.
INSERT INTO @schema@.queue_message_setting (name, value) SELECT key, value FROM jsonb_each_text(@seed@::jsonb) ON CONFLICT DO NOTHING;
INSERT INTO @schema@.queue_message_setting (name, value) SELECT name, fallback FROM @schema@.queue_message_setting_rule() ON CONFLICT DO NOTHING;

DO $do$
DECLARE
    missing text;
    found record;
    place regclass := to_regclass(format('%I.queue_message_adopted', @schema_literal@::text));
BEGIN
    PERFORM @schema@.queue_message_ensure_partitions();

    PERFORM set_config('relay.role_prefix', @role_prefix@, true);
    missing := @schema@.queue_message_grant_roles();
    IF missing IS NOT NULL THEN
        RAISE NOTICE 'Roles or their members are missing and % may not make them: let somebody with CREATEROLE run: % Then run relay migrate again.', current_user, missing;
    END IF;

    IF current_setting('relay.grantees', true) <> '' THEN
        FOR found IN SELECT held.* FROM jsonb_to_recordset(current_setting('relay.grantees')::jsonb) AS held (kind text, grantee text)
                     WHERE held.grantee <> quote_ident(@schema@.queue_message_role(held.kind)) LOOP
            PERFORM @schema@.queue_message_grant(found.kind, found.grantee);
        END LOOP;
    END IF;

    IF place IS NOT NULL THEN
        PERFORM @schema@.queue_message_adopt(place);
    END IF;
END
$do$;
