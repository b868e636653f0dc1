-- Write new and changed numbers; numbers that are the same already are not written again.
INSERT INTO @schema@.queue_message_stats_@grain@ (start, exchange, routing_key, published, discarded, rejected, failed, lock_expired, attempts,
    codes, wait, publish, confirm, within_target, target_ms)
SELECT new.start, new.exchange, new.routing_key, new.published, new.discarded, new.rejected, new.failed, new.lock_expired, new.attempts,
    new.codes, new.wait, new.publish, new.confirm, new.within_target, new.target_ms
FROM pg_temp.queue_message_stats_staged_@grain@ AS new
WHERE NOT EXISTS (SELECT FROM @schema@.queue_message_stats_@grain@ AS kept
                  WHERE (kept.start, kept.exchange, kept.routing_key) = (new.start, new.exchange, new.routing_key) AND kept.* = new.*)
ON CONFLICT (start, exchange, routing_key) DO UPDATE
SET published = excluded.published, discarded = excluded.discarded, rejected = excluded.rejected, failed = excluded.failed,
    lock_expired = excluded.lock_expired, attempts = excluded.attempts, codes = excluded.codes, wait = excluded.wait,
    publish = excluded.publish, confirm = excluded.confirm, within_target = excluded.within_target, target_ms = excluded.target_ms
