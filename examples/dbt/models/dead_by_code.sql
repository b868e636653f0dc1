-- Dead messages by exchange and error code, with the time of the newest.
SELECT exchange, error_code, count(*) AS dead, max(archived_at) AS newest
FROM {{ source('outbox', 'archive') }}
WHERE result IN ('rejected', 'failed', 'lock_expired')
GROUP BY exchange, error_code
