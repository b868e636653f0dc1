-- One page of a scan: what it finds that can be claimed, and how far it came. Reads only, and walks a fixed number of messages. A fresh
-- message without a key counts only if the head of its stream has passed it: its exchange's own stream, else the main one. Of an ordering
-- key only the lowest message of the page counts; find_heads looks for the head. A message with another cluster's higher id is left until
-- it is renumbered. Names of crowded exchanges are hashed with a seed: without it, producers could choose many names with the same hash.
WITH walked AS MATERIALIZED (
@walked@
), clock AS (
    SELECT coalesce(%(now)s, now()) AS now
), open AS MATERIALIZED (
    SELECT walked.place, walked.xid, walked.seq, walked.exchange, walked.ordering_key, walked.lane, walked.attempts,
        CASE WHEN walked.ordering_key IS NOT NULL THEN 'key' WHEN walked.locked_by IS NOT NULL THEN 'suspect'
            WHEN walked.available_at IS NOT NULL THEN 'waiting' ELSE 'stranded' END AS kind
    FROM clock, walked
    WHERE walked.lock_expires_at IS NULL AND (walked.available_at IS NULL OR walked.available_at <= clock.now)
        AND walked.exchange <> ALL(%(held)s::text[])
        AND walked.xid < pg_snapshot_xmax(pg_current_snapshot())
        AND (walked.ordering_key IS NOT NULL OR walked.available_at IS NOT NULL
            OR CASE WHEN walked.exchange = ANY(%(apart)s::text[]) THEN NOT EXISTS (
                SELECT FROM unnest(%(apart)s::text[], %(head_xids)s::text::xid8[], %(head_seqs)s::text::bigint[]) AS stream (exchange, xid, seq)
                WHERE stream.exchange = walked.exchange AND (stream.xid, stream.seq) < (walked.xid, walked.seq))
            ELSE (walked.xid, walked.seq) <= (%(main_xid)s::text::xid8, %(main_seq)s) END)
), secret AS MATERIALIZED (
    SELECT (random() * 1e18)::bigint AS seed
), single AS MATERIALIZED (
    SELECT * FROM open
    WHERE kind = 'suspect' OR kind <> 'key' AND (hashtextextended(exchange, (SELECT seed FROM secret)), exchange) NOT IN (
        SELECT hashtextextended(name, (SELECT seed FROM secret)), name FROM unnest(%(crowded)s::text[]) AS crowded (name))
    LIMIT %(most)s
), found AS (
    SELECT * FROM single
    UNION ALL
    (SELECT DISTINCT ON (ordering_key) * FROM open
     WHERE kind = 'key' AND lane = ANY(%(lanes)s::smallint[])
     ORDER BY ordering_key, place)
    UNION ALL
    -- A lock may be over by its holder's death alone: queue_message_lock_over() judges.
    SELECT place, xid, seq, exchange, ordering_key, lane, attempts, 'expired'
    FROM clock, walked
    WHERE walked.lock_expires_at <= clock.now OR walked.lock_expires_at > clock.now + make_interval(secs => 2 * %(lock_seconds)s)
), counted AS (
    SELECT (SELECT count(*) FROM single) AS taken, (SELECT max(place) FROM single) AS deepest, (SELECT count(*) FROM walked) AS walked
), last AS (
    SELECT taken = %(most)s OR walked = %(walk)s AS cut, CASE WHEN taken = %(most)s THEN deepest ELSE walked END AS place FROM counted
), reached AS (
    SELECT one.xid::text::bigint AS xid, one.seq, one.available_at FROM walked AS one WHERE place = (SELECT place FROM last)
)
SELECT found.kind, found.xid::text::bigint, found.seq, found.exchange, found.ordering_key, found.lane, found.attempts,
    CASE WHEN last.cut THEN reached.xid END, CASE WHEN last.cut THEN reached.seq END,
    (SELECT one.xid::text::bigint FROM walked AS one WHERE place = 1), (SELECT one.seq FROM walked AS one WHERE place = 1),
    reached.available_at::text, (clock.now - make_interval(secs => %(lag)s))::text
FROM clock CROSS JOIN last
LEFT JOIN reached ON true
LEFT JOIN found ON true
ORDER BY found.place
