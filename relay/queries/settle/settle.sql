-- Move messages from the queue to the archive with their results, fenced by the lock token, in one statement. Returns the positions of the
-- messages that were not moved, and whether the message is still ours: another session holds the row, or a trigger of the application's
-- keeps it. A row that a trigger of the application's keeps out of the archive is an error; otherwise it would be in neither table. First
-- tried without `skip`: nothing is locked twice, but a row that another session holds makes the statement fail after `patience`. This is a
-- lock_timeout that ends with the transaction (null: the session's own). With `skip` such rows stay, and their neighbours are moved. See
-- docs/decisions/0036. The arrays are padded with NULL where shorter. Each row is looked up by itself, as in claim.sql.
WITH named AS MATERIALIZED (
    SELECT xid, seq, coalesce(result, 'success') AS result, error_code, error_detail, published, confirmed
    FROM set_config('lock_timeout', coalesce(%(patience)s, current_setting('lock_timeout')), true),
        unnest(%(xids)s::text::xid8[], %(seqs)s::text::bigint[], %(results)s::text[], %(codes)s::text[], %(details)s::text[],
        %(published)s::text::bigint[], %(confirmed)s::text::bigint[])
        AS named (xid, seq, result, error_code, error_detail, published, confirmed)
), free AS MATERIALIZED (
    SELECT message.xid, message.seq
    FROM named JOIN @schema@.queue_message AS message ON message.xid = ANY(ARRAY[named.xid]) AND message.seq = named.seq
    WHERE %(skip)s AND message.lock_token = %(token)s
    FOR UPDATE OF message SKIP LOCKED
), outcome AS (
    SELECT * FROM named WHERE NOT %(skip)s OR (xid, seq) IN (SELECT xid, seq FROM free)
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
    RETURNING 1
), counted AS (
    SELECT (SELECT count(*) FROM deleted WHERE %(keep_successes)s OR result <> 'success') AS asked, (SELECT count(*) FROM archived) AS inserted
), parked AS (
    INSERT INTO @schema@.queue_message_key_hold (ordering_key, held_by, reason)
    SELECT ordering_key, %(handled_by)s, error_code FROM deleted
    WHERE %(park_dead_keys)s AND ordering_key IS NOT NULL AND result NOT IN ('success', 'discarded')
    ON CONFLICT (ordering_key) DO NOTHING
)
SELECT named.xid::text::bigint, named.seq, EXISTS (
    SELECT FROM @schema@.queue_message AS message
    WHERE message.xid = ANY(ARRAY[named.xid]) AND message.seq = named.seq AND message.lock_token = %(token)s
)
FROM named LEFT JOIN deleted USING (xid, seq)
WHERE deleted.seq IS NULL AND (
    SELECT asked = inserted OR @schema@.queue_message_none_skipped('queue_message_archive', asked, inserted) IS NULL FROM counted
)
