-- One dead message that a lake does not hold keeps no other from being deleted: it is put aside, by its place xid/seq, with the way
-- in which it differs and the transaction that archived it, and stays. What is here was found by the last verification.
ALTER TABLE @schema@.queue_message_export ADD COLUMN aside jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN @schema@.queue_message_export.aside IS 'Dead messages that differ from the lake: retention keeps them.';

-- As before, but never one that was put aside.
CREATE OR REPLACE FUNCTION @schema@.queue_message_delete_dead(archived_before timestamptz, exported boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    deleted bigint;
    seen text := @schema@.queue_message_lake_seen();
BEGIN
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
        ORDER BY d.archived_at LIMIT 5000
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

-- lake_rows and damage are those of the lake that PostgreSQL follows, lake is that of the comparison: null, as compared_at, of a day that was only seen.
ALTER TABLE @schema@.queue_message_export ALTER COLUMN compared_at DROP NOT NULL;

-- As before, and of each day that the lake has: dead messages may be of one that PostgreSQL had dropped before anybody compared it with this lake.
CREATE OR REPLACE FUNCTION @schema@.queue_message_export_seen(lake text, epoch bigint, version bigint, began timestamptz, partitions text[], rows bigint[],
    damage text[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    -- Locks the row, so that looks and commits come one after the other. A look of the future is none: the clock was set back since.
    UPDATE @schema@.queue_message_export_position p SET seen_at = began, looked_at = began, version = version, problem = NULL
    WHERE p.lake = lake AND p.epoch = epoch AND (p.looked_at <= began OR p.looked_at > clock_timestamp()) IS NOT FALSE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO @schema@.queue_message_export AS e (partition, rows, compared_at)
    SELECT f.partition, 0, NULL FROM unnest(partitions) AS f (partition)
    ON CONFLICT ON CONSTRAINT queue_message_export_pkey DO NOTHING;
    UPDATE @schema@.queue_message_export e
    SET lake_rows = greatest(e.lake_rows, f.rows), damage = f.damage
    FROM unnest(partitions, rows, damage) AS f (partition, rows, damage)
    WHERE e.partition = f.partition AND (e.damage IS DISTINCT FROM f.damage OR e.lake_rows IS DISTINCT FROM greatest(e.lake_rows, f.rows));
    RETURN true;
END
$body$;

-- As before; what looks have found is forgotten where another lake was followed.
CREATE OR REPLACE FUNCTION @schema@.queue_message_export_follow(lake text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    former text;
BEGIN
    INSERT INTO @schema@.queue_message_export_position (exported_xid) VALUES ('0') ON CONFLICT DO NOTHING;
    SELECT p.lake INTO former FROM @schema@.queue_message_export_position p FOR UPDATE;
    UPDATE @schema@.queue_message_export_position p
    SET lake = lake, epoch = NULL, pending = '{}', exported_xid = '0', version = NULL, seen_at = NULL, looked_at = NULL, problem = NULL, noted_at = now();
    -- Of a day that is gone nobody can say more than was said.
    UPDATE @schema@.queue_message_export e SET
        verified_at = CASE WHEN to_regclass(format('%I.%I', @schema_literal@::text, e.partition)) IS NULL THEN e.verified_at END,
        lake_rows = CASE WHEN former = lake THEN e.lake_rows END, damage = CASE WHEN former = lake THEN e.damage END;
END
$body$;
