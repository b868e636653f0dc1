-- Owners may delete old notes of audit and ledger. A replay without a note counts for all messages with the id: what was sent must not go out again.

-- Messages with replays that neither audit nor ledger notes. All at once: producers choose ids, and each message of one id would look at all its
-- replays. 200,000 archived replays take 0.6 s. So few rows are promised that PostgreSQL keeps them in a hash table.
CREATE FUNCTION @schema@.queue_message_unnoted_replays() RETURNS SETOF uuid
LANGUAGE plpgsql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
#variable_conflict use_variable
BEGIN
    RETURN QUERY SELECT r.replay_of FROM (
        SELECT a.replay_of, a.id FROM @schema@.queue_message_archive a WHERE a.replay_of IS NOT NULL
        UNION ALL SELECT q.replay_of, q.id FROM @schema@.queue_message q WHERE q.replay_of IS NOT NULL) r
    -- OFFSET 0: by the replay's id, because one subject may have thousands of replays.
    WHERE NOT EXISTS (SELECT FROM (
            SELECT n.subject FROM @schema@.queue_message_audit n
            WHERE n.action = 'replay' AND n.became ->> 'id' = r.id::text OFFSET 0) n WHERE n.subject = r.replay_of::text)
        AND NOT EXISTS (SELECT FROM @schema@.queue_message_replay_ledger l WHERE l.id = r.id);
END
$body$;

-- As before, but by places only where each replay of the id is noted.
CREATE OR REPLACE FUNCTION @schema@.queue_message_find(
    archived_from timestamptz DEFAULT NULL, archived_to timestamptz DEFAULT NULL, exchange text DEFAULT NULL, routing_key text DEFAULT NULL,
    result text DEFAULT NULL, error_code text DEFAULT NULL, again boolean DEFAULT false,
    after_archived_xid xid8 DEFAULT '0', after_xid xid8 DEFAULT '0', after_seq bigint DEFAULT 0, most integer DEFAULT 1000,
    job text DEFAULT NULL
) RETURNS TABLE (id uuid, archived_xid xid8, xid xid8, seq bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
#variable_conflict use_variable
BEGIN
    RETURN QUERY SELECT a.id, a.archived_xid, a.xid, a.seq
    FROM (
        SELECT a.id, a.archived_xid, a.xid, a.seq, a.archived_at, a.replay_of, a.result
        FROM @schema@.queue_message_archive a
        WHERE a.archived_xid >= after_archived_xid
          AND (a.archived_xid, a.xid, a.seq) > (after_archived_xid, after_xid, after_seq)
          AND a.archived_at >= coalesce(archived_from, '-infinity') AND a.archived_at < coalesce(archived_to, 'infinity')
          AND (queue_message_find.exchange IS NULL OR a.exchange = queue_message_find.exchange)
          AND (queue_message_find.routing_key IS NULL OR a.routing_key LIKE
               replace(replace(replace(replace(queue_message_find.routing_key, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_'), '*', '%'))
          AND (queue_message_find.result IS NULL OR a.result = queue_message_find.result)
          AND (queue_message_find.error_code IS NULL OR a.error_code = queue_message_find.error_code)
          AND (queue_message_find.result IS NOT NULL OR queue_message_find.error_code IS NOT NULL
               OR coalesce(a.error_code, '') <> ALL ('{cancelled,superseded,bundled}'))
          -- Long options need not be read for this.
          AND (pg_column_size(a.options) > 100 OR a.options <> '{"erased": true}')
        ORDER BY a.archived_xid, a.xid, a.seq
        OFFSET 0
    ) a
    WHERE (again
          -- With the same id a replay is no replay of itself.
          OR (NOT EXISTS (SELECT FROM @schema@.queue_message_archive r
                          WHERE r.replay_of = a.id AND (r.id <> a.id OR r.archived_at > a.archived_at))
              AND a.id NOT IN (SELECT @schema@.queue_message_waiting_replays())
              -- The look by itself is a tenth of what the function costs.
              OR NOT EXISTS (SELECT FROM @schema@.queue_message_audit n WHERE n.action = 'replay' AND n.subject = a.id::text
                             AND n.became ->> 'place' = format('%s/%s', a.xid, a.seq))
                  AND @schema@.queue_message_replayed_elsewhere(a.id, a.xid, a.seq)
                  AND a.id NOT IN (SELECT @schema@.queue_message_unnoted_replays()))
          AND (a.replay_of IS NULL OR a.result <> 'success'
               OR NOT @schema@.queue_message_repeats(
                   a.replay_of, a.id, a.archived_at, queue_message_find.result, queue_message_find.error_code)))
      AND (queue_message_find.job IS NULL
           OR NOT EXISTS (SELECT FROM @schema@.queue_message_replay_ledger l WHERE (l.job, l.xid, l.seq) = (queue_message_find.job, a.xid, a.seq))
          AND NOT EXISTS (SELECT FROM @schema@.queue_message_replay_ledger l
                          WHERE l.id = a.id AND l.job = queue_message_find.job AND a.replay_of IS NOT NULL))
    ORDER BY a.archived_xid, a.xid, a.seq
    LIMIT most;
END
$body$;
