-- Move messages from the queue to the archive with their results, fenced by the lock token, in one statement.
-- Returns the positions that were not ours any more: another relay had taken them over. The arrays are padded with NULL where shorter.
-- Each row is looked up by itself, as in claim.sql.
WITH outcome AS MATERIALIZED (
    SELECT xid, seq, coalesce(result, 'success') AS result, error_code, error_detail, published, confirmed
    FROM unnest(%(xids)s::text::xid8[], %(seqs)s::text::bigint[], %(results)s::text[], %(codes)s::text[], %(details)s::text[],
        %(published)s::text::bigint[], %(confirmed)s::text::bigint[])
        AS outcome (xid, seq, result, error_code, error_detail, published, confirmed)
), deleted AS (
    DELETE FROM @schema@.queue_message AS message
    USING outcome
    WHERE message.xid = ANY(ARRAY[outcome.xid]) AND message.seq = outcome.seq AND message.lock_token = %(token)s
    RETURNING message.xid, message.seq, message.id, message.exchange, message.routing_key, message.content, message.body, message.options,
        message.ordering_key, message.available_at, message.expires_at, message.created_at, message.attempts, message.replay_of,
        outcome.result, outcome.error_code, outcome.error_detail, outcome.published, outcome.confirmed
), archived AS (
    INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at,
        created_at, attempts, replay_of, result, error_code, error_detail, handled_by, claimed_at, published_at, confirmed_at)
    SELECT xid, seq, id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at,
        created_at, attempts, replay_of, result, error_code, error_detail, %(handled_by)s, to_timestamp(%(claimed_at)s),
        to_timestamp(%(claimed_at)s) + published * interval '1 microsecond', to_timestamp(%(claimed_at)s) + confirmed * interval '1 microsecond'
    FROM deleted
    WHERE %(keep_successes)s OR result <> 'success'
), parked AS (
    INSERT INTO @schema@.queue_message_key_hold (ordering_key, held_by, reason)
    SELECT ordering_key, %(handled_by)s, error_code FROM deleted
    WHERE %(park_dead_keys)s AND ordering_key IS NOT NULL AND result NOT IN ('success', 'discarded')
    ON CONFLICT (ordering_key) DO NOTHING
)
SELECT outcome.xid::text::bigint, outcome.seq
FROM outcome LEFT JOIN deleted USING (xid, seq)
WHERE deleted.seq IS NULL
