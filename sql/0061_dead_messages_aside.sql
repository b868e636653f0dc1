-- One dead message that a lake does not hold keeps no other from being deleted: it is put aside, by its place xid/seq, with the way
-- in which it differs and the transaction that archived it, and stays. What is here was found by the last verification, below its mark.
ALTER TABLE @schema@.queue_message_export ADD COLUMN aside jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN @schema@.queue_message_export.aside IS 'Dead messages below exported_xid that differ from the lake: retention keeps them.';

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
