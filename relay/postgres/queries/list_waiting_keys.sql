-- Ordering keys of messages whose wait is over, a page after a place, by queue_message_available_at_idx: those that are not heads must not
-- keep the others from being seen. The place is a time and how many messages of that very time were seen; a second column to sort by would
-- have them all sorted. What came back from an expired lock is left to due_suspect.
WITH page AS MATERIALIZED (
    SELECT available_at, ordering_key
    FROM @schema@.queue_message
    WHERE available_at <= coalesce(%(now)s, now()) AND available_at >= %(after)s::text::timestamptz
        AND ordering_key IS NOT NULL AND lane + 0 = ANY(%(lanes)s::smallint[])
        AND lock_expires_at IS NULL AND locked_by IS NULL AND exchange <> ALL(%(except)s::text[])
    ORDER BY available_at
    OFFSET %(seen)s
    LIMIT %(most)s
), last AS (
    SELECT max(available_at) AS available_at, count(*) AS messages, array_agg(DISTINCT ordering_key) AS keys FROM page
)
SELECT keys, messages = %(most)s, available_at::text,
    (SELECT count(*) FROM page WHERE page.available_at = last.available_at)
        + CASE WHEN last.available_at = %(after)s::text::timestamptz THEN %(seen)s ELSE 0 END
FROM last
