-- All replays of the archived message at a place; noted is false of a replay of which the audit does not say which of the messages with the id it
-- repeats.
WITH noted AS MATERIALIZED (
    SELECT (became ->> 'id')::uuid AS id, max(became ->> 'place') AS place FROM @schema@.queue_message_audit
    WHERE action = 'replay' AND subject = %(id)s::text GROUP BY 1
)
SELECT sent.id, sent.xid || '/' || sent.seq AS place, noted.place IS NOT NULL AS noted
FROM @schema@.queue_message_state AS sent LEFT JOIN noted ON noted.id = sent.id AND sent.id <> sent.replay_of
WHERE sent.replay_of = %(id)s AND coalesce(noted.place = format('%%s/%%s', %(xid)s::text, %(seq)s::bigint), true)
