-- The replays of the archived messages with an id, or of the one at a place. of_place says which of the messages was replayed; null if the
-- audit does not say.
SELECT * FROM (
    SELECT sent.id, sent.state, sent.created_at, (
        SELECT max(became ->> 'place') FROM @schema@.queue_message_audit
        WHERE action = 'replay' AND subject = %(id)s::text AND (became ->> 'id')::uuid = sent.id AND sent.id <> sent.replay_of) AS of_place
    FROM @schema@.queue_message_state AS sent WHERE sent.replay_of = %(id)s) AS replay
WHERE %(xid)s::text IS NULL OR coalesce(of_place = format('%%s/%%s', %(xid)s::text, %(seq)s::bigint), true)
ORDER BY created_at
