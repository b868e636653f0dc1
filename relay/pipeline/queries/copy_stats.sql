-- New numbers, in the text format of COPY.
COPY pg_temp.queue_message_stats_staged_@grain@ (start, exchange, routing_key, published, discarded, rejected, failed, lock_expired, attempts,
    codes, wait, publish, confirm, within_target, target_ms) FROM STDIN
