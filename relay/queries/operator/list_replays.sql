-- The newest replays of the archived messages with an id, or of the one at a place. of_place says which of the messages was replayed; null if the
-- audit does not say. place is that of the replay.
WITH noted AS MATERIALIZED (
    SELECT (became ->> 'id')::uuid AS id, max(became ->> 'place') AS place FROM @schema@.queue_message_audit
    WHERE action = 'replay' AND subject = %(id)s::text GROUP BY 1
), found AS MATERIALIZED (
    SELECT sent.id, sent.state, sent.created_at, noted.place AS of_place, sent.xid || '/' || sent.seq AS place
    FROM @schema@.queue_message_state AS sent LEFT JOIN noted ON noted.id = sent.id AND sent.id <> sent.replay_of
    WHERE sent.replay_of = %(id)s
)
SELECT * FROM (
    SELECT * FROM found WHERE %(xid)s::text IS NULL OR coalesce(of_place = format('%%s/%%s', %(xid)s::text, %(seq)s::bigint), true)
    ORDER BY created_at DESC LIMIT %(most)s) AS newest
ORDER BY created_at
