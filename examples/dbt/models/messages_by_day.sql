-- What became of each exchange's messages, by UTC day, and how long successes took from when they were due.
SELECT
    day,
    exchange,
    count(*) AS messages,
    count(*) FILTER (result = 'success') AS published,
    count(*) FILTER (result IN ('rejected', 'failed', 'lock_expired')) AS dead,
    quantile_disc((epoch_us(confirmed_at) - epoch_us(greatest(created_at, available_at))) / 1000.0, 0.95) FILTER (result = 'success') AS p95_ms
FROM {{ source('outbox', 'archive') }}
GROUP BY day, exchange
