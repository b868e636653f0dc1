-- The newest replays of the archived messages with an id, or of the one at a place. of_place says which of the messages was replayed; null if
-- neither audit nor ledger says, and with the same id. place is that of the replay.
WITH found AS MATERIALIZED (
    SELECT sent.id, sent.state, sent.created_at, sent.xid || '/' || sent.seq AS place,
        CASE WHEN sent.id <> sent.replay_of THEN @schema@.queue_message_replay_place(sent.replay_of, sent.id) END AS of_place
    FROM @schema@.queue_message_state AS sent WHERE sent.replay_of = %(id)s
)
SELECT * FROM (
    SELECT * FROM found WHERE %(xid)s::text IS NULL OR coalesce(of_place = format('%%s/%%s', %(xid)s::text, %(seq)s::bigint), true)
    ORDER BY created_at DESC LIMIT %(most)s) AS newest
ORDER BY created_at
