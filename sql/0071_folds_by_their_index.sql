-- A fold finds the first message that is due by the index of that order, whatever the statistics say. After a vacuum beside an old snapshot they
-- say that the table is empty, and an index that is read from end to end seems as short as a step into the right one: each fold then read twice
-- all that was folded, and each look once (23 pages for each 6,000 messages).

CREATE OR REPLACE FUNCTION @schema@.queue_message_fold(now timestamptz DEFAULT NULL, most integer DEFAULT 10000,
    since timestamptz DEFAULT '-infinity', OUT folded bigint, OUT next_at timestamptz, OUT superseded bigint, OUT bundled bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    until timestamptz := clock_timestamp() + interval '2 s';
    large boolean;
BEGIN
    folded := 0;
    next_at := (SELECT k.due_at FROM @schema@.queue_message_keyed_row k WHERE k.due_at >= since ORDER BY k.due_at LIMIT 1);
    IF next_at <= clock AND @schema@.queue_message_take_turn('fold') THEN
        large := clock >= (SELECT k.due_at FROM @schema@.queue_message_keyed_row k WHERE k.large AND k.due_at >= since ORDER BY k.due_at LIMIT 1);
        folded := @schema@.queue_message_fold_some(@schema@.queue_message_keyed_due(clock, most, false, since), 1, clock,
            until - CASE WHEN large THEN interval '1 s' ELSE '0 s' END, large => false, since => since);
        IF large THEN
            folded := folded + @schema@.queue_message_fold_large(clock, 1 + most / 10, until, since);
        END IF;
        next_at := (SELECT k.due_at FROM @schema@.queue_message_keyed_row k WHERE k.due_at >= since ORDER BY k.due_at LIMIT 1);
    END IF;
    superseded := 0;
    bundled := 0;
    IF folded > 0 THEN
        SELECT count(*) FILTER (WHERE a.error_code = 'superseded'), count(*) FILTER (WHERE a.error_code = 'bundled') INTO superseded, bundled
        FROM @schema@.queue_message_archive a WHERE a.archived_xid = pg_current_xact_id();
    END IF;
END
$body$;
