-- Write new and changed numbers.
INSERT INTO @schema@.queue_message_stats_@grain@ (start, exchange, routing_key, published, discarded, rejected, failed, lock_expired, attempts,
    codes, wait, publish, confirm, within_target, target_ms)
SELECT start, exchange, routing_key, published, discarded, rejected, failed, lock_expired, attempts,
    codes, wait, publish, confirm, within_target, target_ms
FROM pg_temp.queue_message_stats_staged_@grain@
ON CONFLICT (start, exchange, routing_key) DO UPDATE
SET published = excluded.published, discarded = excluded.discarded, rejected = excluded.rejected, failed = excluded.failed,
    lock_expired = excluded.lock_expired, attempts = excluded.attempts, codes = excluded.codes, wait = excluded.wait,
    publish = excluded.publish, confirm = excluded.confirm, within_target = excluded.within_target, target_ms = excluded.target_ms
