-- No row means that both models add up to the lake.
WITH lake AS (
    SELECT count(*) AS messages, count(*) FILTER (result IN ('rejected', 'failed', 'lock_expired')) AS dead FROM {{ source('outbox', 'archive') }}
)
SELECT messages, dead
FROM lake
WHERE messages <> (SELECT coalesce(sum(messages), 0) FROM {{ ref('messages_by_day') }})
    OR dead <> (SELECT coalesce(sum(dead), 0) FROM {{ ref('dead_by_code') }})
