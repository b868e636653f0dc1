-- Maintenance tasks that go by the clock, and not by when their transaction began; what dumps could not restore; what broke figures.

-- As before, but a transaction that was opened long ago has the time too: its own looked like a clock that had been set back, so locks were freed.
CREATE OR REPLACE FUNCTION @schema@.queue_message_clock(wanted timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    -- Called with definer's rights, so current_user is the owner.
    IF wanted IS NOT NULL AND NOT pg_has_role(session_user, current_user, 'MEMBER') THEN
        RAISE EXCEPTION 'Only the owner of the schema may name another time than now: leave it out.' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN coalesce(wanted, clock_timestamp());
END
$body$;

-- As before, but with an export only in a transaction that sees what became of the lake.
CREATE OR REPLACE FUNCTION @schema@.queue_message_delete_dead(archived_before timestamptz, exported boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    deleted bigint;
    seen text := @schema@.queue_message_lake_seen();
BEGIN
    IF exported AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'Retention with an export must see what was archived last: call queue_message_retain() in a transaction that is READ COMMITTED.'
            USING ERRCODE = 'active_sql_transaction';
    END IF;
    -- Not a SET clause of the function: only a superuser may write one for a name that no extension has declared.
    PERFORM set_config('relay.retention', 'on', true);
    WITH old AS (
        SELECT d.ctid AS place FROM @schema@.queue_message_dead d
        WHERE d.archived_at < archived_before
          AND (NOT exported OR EXISTS (SELECT FROM @schema@.queue_message_export e
              WHERE e.partition = 'queue_message_dead' AND e.verified_at IS NOT NULL AND e.lake = seen
                AND NOT e.aside ? format('%s/%s', d.xid, d.seq)
                AND (d.archived_xid < e.exported_xid
                    OR d.archived_xid >= pg_snapshot_xmax(pg_current_snapshot()) AND e.exported_xid < pg_snapshot_xmax(pg_current_snapshot())
                    AND age(d.xmin) > age(e.exported_xid::xid)))
              AND NOT EXISTS (SELECT FROM @schema@.queue_message_export e WHERE e.damage IS NOT NULL))
        ORDER BY d.archived_at LIMIT 5000 FOR UPDATE OF d SKIP LOCKED
    ), gone AS (
        DELETE FROM @schema@.queue_message_dead d USING old WHERE d.ctid = old.place RETURNING d.xid, d.seq
    ), answers AS (
        DELETE FROM @schema@.queue_message_dead_ack a USING gone WHERE (a.xid, a.seq) = (gone.xid, gone.seq)
    )
    SELECT count(*) INTO deleted FROM gone;
    PERFORM set_config('relay.retention', 'off', true);
    RETURN deleted;
END
$body$;

-- As before, but a schema has a bounded depth. The relay reads 255 levels, and PostgreSQL prints more than it reads again.
CREATE OR REPLACE FUNCTION @schema@.queue_message_contract_error(mode text, schema jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT CASE
        WHEN mode NOT IN ('enforce', 'warn') THEN 'A contract''s mode must be enforce or warn.'
        WHEN jsonb_typeof(schema) NOT IN ('object', 'boolean') THEN 'A contract''s schema must be a JSON object, or true or false.'
        WHEN octet_length(schema::text) > 262144 THEN
            format('The schema of a contract is %s bytes long; the limit is 262144 bytes.', octet_length(schema::text))
        WHEN jsonb_path_exists(schema, '$.**{301}') THEN 'A contract''s schema has more than 300 levels of lists and objects: flatten it with $defs and $ref.'
        WHEN schema ? '$schema' AND schema ->> '$schema' NOT IN
            ('https://json-schema.org/draft/2020-12/schema', 'https://json-schema.org/draft/2020-12/schema#') THEN
            'A contract''s schema must be of https://json-schema.org/draft/2020-12/schema: correct $schema.'
    END
$body$;

-- Numbers and histograms have a size that dumps can print and views can add up; those of a window are below a trillion.
ALTER TABLE @schema@.queue_message_stats_window
    ADD CONSTRAINT queue_message_stats_window_numbers_check CHECK (
        0 <= least(published, discarded, rejected, failed, lock_expired, attempts, within_target, target_ms)
        AND 1000000000000 >= greatest(published, discarded, rejected, failed, lock_expired, attempts, within_target, target_ms)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_window_wait_check
        CHECK (cardinality(wait) <= 64 AND 0 <= ALL (wait) AND 1000000000000 >= ALL (wait)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_window_publish_check
        CHECK (cardinality(publish) <= 64 AND 0 <= ALL (publish) AND 1000000000000 >= ALL (publish)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_window_confirm_check
        CHECK (cardinality(confirm) <= 64 AND 0 <= ALL (confirm) AND 1000000000000 >= ALL (confirm)) NOT VALID;
ALTER TABLE @schema@.queue_message_stats_hour
    ADD CONSTRAINT queue_message_stats_hour_numbers_check CHECK (
        0 <= least(published, discarded, rejected, failed, lock_expired, attempts, within_target, target_ms)
        AND 1000000000000 >= greatest(published, discarded, rejected, failed, lock_expired, attempts, within_target, target_ms)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_hour_wait_check
        CHECK (cardinality(wait) <= 64 AND 0 <= ALL (wait) AND 1000000000000 >= ALL (wait)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_hour_publish_check
        CHECK (cardinality(publish) <= 64 AND 0 <= ALL (publish) AND 1000000000000 >= ALL (publish)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_hour_confirm_check
        CHECK (cardinality(confirm) <= 64 AND 0 <= ALL (confirm) AND 1000000000000 >= ALL (confirm)) NOT VALID;
ALTER TABLE @schema@.queue_message_stats_day
    ADD CONSTRAINT queue_message_stats_day_numbers_check CHECK (
        0 <= least(published, discarded, rejected, failed, lock_expired, attempts, within_target, target_ms)
        AND 1000000000000 >= greatest(published, discarded, rejected, failed, lock_expired, attempts, within_target, target_ms)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_day_wait_check
        CHECK (cardinality(wait) <= 64 AND 0 <= ALL (wait) AND 1000000000000 >= ALL (wait)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_day_publish_check
        CHECK (cardinality(publish) <= 64 AND 0 <= ALL (publish) AND 1000000000000 >= ALL (publish)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_day_confirm_check
        CHECK (cardinality(confirm) <= 64 AND 0 <= ALL (confirm) AND 1000000000000 >= ALL (confirm)) NOT VALID;
ALTER TABLE @schema@.queue_message_lake_day ADD CONSTRAINT queue_message_lake_day_numbers_check
    CHECK (0 <= least(files, rows, bytes) AND 1000000000000000 >= greatest(files, rows, bytes)) NOT VALID;
