-- An INSERT under a key is an error where its trigger does not fire. It was answered with an id, and nothing was enqueued.

-- As before, with a last column for its default. A trigger of a view cannot be ENABLE ALWAYS: under session_replication_role = replica, as in
-- the triggers that a subscription fires, PostgreSQL skips it and takes the row for inserted. Defaults are computed all the same.
CREATE OR REPLACE VIEW @schema@.queue_message_keyed AS
    SELECT k.id, k.exchange, k.routing_key, CASE WHEN k.bundle_key IS NULL THEN k.content ELSE k.content -> 0 END AS content, k.body, k.options,
        k.ordering_key, k.available_at, k.expires_at, k.bundle_key, k.coalesce_key, NULL::text AS dedup_key, NULL::integer AS dedup_seconds,
        NULL::boolean AS trigger_fires
    FROM @schema@.queue_message_keyed_row k;
-- The sentence is no boolean, so PostgreSQL raises it. A function of ours would need a right that a login with INSERT alone has not.
ALTER VIEW @schema@.queue_message_keyed ALTER COLUMN trigger_fires SET DEFAULT (CASE pg_catalog.current_setting('session_replication_role')
    WHEN 'replica' THEN 'queue_message_keyed refuses an INSERT while session_replication_role is replica' ELSE 'yes' END)::boolean;
