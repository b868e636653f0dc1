-- Which archived messages another transaction has replayed: when, and as what. Meant is the newest that was archived under an id; with the
-- same id a replay counts if it waits still or went out. The audit knows of replays that retention has dropped.
WITH newest AS MATERIALIZED (
    SELECT DISTINCT ON (id) id, archived_at, state = 'success' AND replay_of = id AS sent_again FROM @schema@.queue_message_state
    WHERE id = ANY(%(ids)s) AND archived_at IS NOT NULL ORDER BY id, archived_xid DESC, archived_at DESC
), replays AS (
    SELECT replay_of AS id, id AS replayed_as, created_at AS replayed_at, coalesce(archived_at, 'infinity') AS known_until
    FROM @schema@.queue_message_state WHERE replay_of = ANY(%(ids)s) AND xid <> pg_current_xact_id()
    UNION ALL
    SELECT subject::uuid, (became ->> 'id')::uuid, acted_at, acted_at FROM @schema@.queue_message_audit AS audit
    WHERE action = 'replay' AND subject = ANY(%(ids)s::text[]) AND audit.xmin <> pg_current_xact_id()::xid
)
SELECT DISTINCT ON (newest.id) newest.id, replayed_as, replayed_at
FROM newest JOIN replays ON replays.id = newest.id AND (replayed_as <> newest.id OR known_until > newest.archived_at OR sent_again)
ORDER BY newest.id, replayed_at DESC
