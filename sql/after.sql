-- Runs after the numbered migrations, each time; every step can be repeated.

-- Settings from the environment first, then what is still missing: a value that somebody changed stays.
INSERT INTO @schema@.queue_message_setting (name, value) SELECT key, value FROM jsonb_each_text(@seed@::jsonb) ON CONFLICT DO NOTHING;
INSERT INTO @schema@.queue_message_setting (name, value) SELECT name, fallback FROM @schema@.queue_message_setting_rule() ON CONFLICT DO NOTHING;

DO $do$ BEGIN PERFORM @schema@.queue_message_ensure_partitions(); END $do$;
