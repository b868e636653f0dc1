-- All replays of the archived message at a place; noted is false of a replay of which neither audit nor ledger says which of the messages with the
-- id it repeats.
WITH sent AS MATERIALIZED (
    SELECT id, xid || '/' || seq AS place, CASE WHEN id <> replay_of THEN @schema@.queue_message_replay_place(replay_of, id) END AS of_place
    FROM @schema@.queue_message_state WHERE replay_of = %(id)s
)
SELECT id, place, of_place IS NOT NULL AS noted FROM sent WHERE coalesce(of_place = format('%%s/%%s', %(xid)s::text, %(seq)s::bigint), true)
