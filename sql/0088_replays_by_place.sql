-- Producers choose ids, and see those of dead messages. A replay belongs to the message at the place that audit or ledger noted, and not to all
-- with the id, nor to the newest of them. By a message with another's id a producer kept a replay from going out, or had it go out twice.

CREATE INDEX queue_message_audit_replayed_as_idx ON @schema@.queue_message_audit ((became ->> 'id'), acted_at) WHERE action = 'replay';

-- The place (xid/seq) of the message that a replay was made from: by the audit, or by the ledger of replay jobs. Null if neither says, as before
-- migration 44. With the same id there may be several, one after the other: then it is the last that was made before a time.
CREATE FUNCTION @schema@.queue_message_replay_place(origin uuid, replay uuid, archived_before timestamptz DEFAULT 'infinity') RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    noted record;
    listed record;
BEGIN
    IF origin <> replay THEN
        archived_before := 'infinity';
    END IF;
    -- OFFSET 0: by the replay's id, because one subject may have thousands of replays.
    SELECT n.acted_at, n.place INTO noted FROM (
        SELECT n.acted_at, n.subject, n.became ->> 'place' AS place FROM @schema@.queue_message_audit n
        WHERE n.action = 'replay' AND n.became ->> 'id' = replay::text AND n.acted_at < archived_before
        ORDER BY n.acted_at DESC OFFSET 0) n
    WHERE n.subject = origin::text ORDER BY n.acted_at DESC LIMIT 1;
    IF origin <> replay AND noted.place IS NOT NULL THEN
        RETURN noted.place;
    END IF;
    -- The first with a new id: later ones are replays of the replay with the same id.
    SELECT l.enqueued_at, format('%s/%s', l.xid, l.seq) AS place INTO listed FROM (
        SELECT l.xid, l.seq, l.enqueued_at FROM @schema@.queue_message_replay_ledger l
        WHERE l.id = replay AND l.enqueued_at < archived_before OFFSET 0) l
    ORDER BY CASE WHEN origin <> replay THEN l.enqueued_at END, l.enqueued_at DESC LIMIT 1;
    RETURN CASE WHEN listed.place IS NULL OR origin = replay AND noted.acted_at >= listed.enqueued_at THEN noted.place ELSE listed.place END;
END
$body$;

-- Whether a replay that went out repeats what a filter by result and code has selected: the message that it was made from, or the one that this was
-- made from, and so on. If retention has dropped one of them, it counts as such. Planned once and compiled never, as before.
CREATE FUNCTION @schema@.queue_message_repeats(origin uuid, replay uuid, archived_before timestamptz, result text, error_code text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_sort = on SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    older record;
    place text;
    of_xid xid8;
    of_seq bigint;
BEGIN
    IF queue_message_repeats.result IS NULL AND queue_message_repeats.error_code IS NULL THEN
        RETURN true;
    END IF;
    LOOP
        place := @schema@.queue_message_replay_place(origin, replay, archived_before);
        of_xid := split_part(place, '/', 1);
        of_seq := split_part(place, '/', 2);
        SELECT * INTO older FROM (
            SELECT a.replay_of, a.archived_at, a.result, a.error_code FROM @schema@.queue_message_archive a
            WHERE a.id = origin AND a.archived_at < archived_before AND (place IS NULL OR (a.xid, a.seq) = (of_xid, of_seq)) OFFSET 0) a
        ORDER BY a.archived_at DESC LIMIT 1;
        IF NOT FOUND OR older.result = coalesce(queue_message_repeats.result, older.result)
            AND older.error_code IS NOT DISTINCT FROM coalesce(queue_message_repeats.error_code, older.error_code) THEN
            RETURN true;
        ELSIF older.replay_of IS NULL THEN
            RETURN false;
        END IF;
        replay := origin;
        origin := older.replay_of;
        archived_before := older.archived_at;
    END LOOP;
END
$body$;

-- As before, but from each replay to the message that it was made from.
CREATE OR REPLACE FUNCTION @schema@.queue_message_replays_before(message uuid, xid xid8, seq bigint, most integer) RETURNS integer
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    replay uuid := message;
    place text;
    of_xid xid8;
    of_seq bigint;
    found_before integer := 0;
BEGIN
    SELECT a.replay_of, a.archived_xid, a.archived_at INTO one FROM @schema@.queue_message_archive a
    WHERE a.id = message AND (a.xid, a.seq) = (xid, seq);
    WHILE one.replay_of IS NOT NULL AND found_before < most LOOP
        found_before := found_before + 1;
        place := @schema@.queue_message_replay_place(one.replay_of, replay, one.archived_at);
        of_xid := split_part(place, '/', 1);
        of_seq := split_part(place, '/', 2);
        replay := one.replay_of;
        -- By the id, and what was archived before: with the same id a replay is of itself. OFFSET 0 as in queue_message_replay.
        SELECT a.replay_of, a.archived_xid, a.archived_at INTO one FROM (
            SELECT a.replay_of, a.archived_xid, a.archived_at FROM @schema@.queue_message_archive a
            WHERE a.id = one.replay_of AND a.archived_xid < one.archived_xid
                AND (place IS NULL OR (a.xid, a.seq) = (of_xid, of_seq)) OFFSET 0) a
        ORDER BY a.replay_of IS NULL, a.archived_xid DESC LIMIT 1;
        IF NOT FOUND THEN
            RETURN CASE WHEN found_before >= most THEN found_before END;
        END IF;
    END LOOP;
    RETURN found_before;
END
$body$;

-- As before, but a replay from the lake too counts for the message that it was made from, also while it waits. Each replay is in audit or ledger.
CREATE OR REPLACE FUNCTION @schema@.queue_message_replayed_elsewhere(message uuid, xid xid8, seq bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    SELECT NOT EXISTS (SELECT FROM @schema@.queue_message_audit n
                       WHERE n.action = 'replay' AND n.subject = message::text AND n.became ->> 'place' IS NULL)
        AND NOT EXISTS (SELECT FROM @schema@.queue_message_audit n
                        WHERE n.action = 'replay' AND n.subject = message::text AND n.became ->> 'place' = format('%s/%s', xid, seq))
        AND NOT EXISTS (SELECT FROM (
                SELECT l.id FROM @schema@.queue_message_replay_ledger l
                WHERE (l.xid, l.seq) = (queue_message_replayed_elsewhere.xid, queue_message_replayed_elsewhere.seq) OFFSET 0) l
            WHERE message IN (SELECT r.replay_of FROM (SELECT r.replay_of FROM @schema@.queue_message_archive r WHERE r.id = l.id OFFSET 0) r)
                OR message IN (SELECT m.replay_of FROM (SELECT m.replay_of FROM @schema@.queue_message m WHERE m.id = l.id OFFSET 0) m))
$body$;

-- As before, but by what audit and ledger say of the place.
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
                  AND @schema@.queue_message_replayed_elsewhere(a.id, a.xid, a.seq))
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

-- Nothing calls it any more.
DROP FUNCTION @schema@.queue_message_repeats(uuid, timestamptz, text, text);

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_88;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_88() p
    UNION ALL VALUES ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_replay_place')
$body$;
