-- Lock due messages up to a number of bytes (at least one) and return them in claim order. A limit on bytes cuts by position, or by what
-- the fragment says. Every changed column is unindexed, so the update stays HOT. RETURNING has no order of its own; the outer SELECT
-- restores it. `= ANY(ARRAY[one])` is an equality that only a look-up for each row can use, and no join. Otherwise PostgreSQL takes a join
-- that walks the whole primary key to be cheaper, if autovacuum has counted an empty queue (docs/decisions/0014). Every statement that goes
-- by position is written so. The first row alone has the header: this statement's own snapshot, how many were due, the database's clock,
-- and what was refused if the claim goes one by one. For a claim of fresh messages it has the bound of each range too. A large payload does
-- not come with the claim, nor one that is longer as text than its size lets expect: see read_payload.
WITH @ranges@due AS MATERIALIZED (
@due@
), chosen AS MATERIALIZED (
    SELECT xid, seq, size
    FROM (SELECT xid, seq, size, sum(size) OVER (ORDER BY @cut_by@) - size AS before FROM due) AS sized
    WHERE before < %(limit_bytes)s
), @claimed@
SELECT claimed.xid::text::bigint, seq, id::text, exchange, routing_key, payload, is_binary, options, ordering_key, replay_of::text, attempts,
    extract(epoch FROM expires_at)::float8 - header.clock, lane,
    CASE WHEN row_number() OVER in_order = 1 THEN pg_current_snapshot()::text END,
    header.due,
    header.clock,
    @refused@@bounds@
FROM (SELECT (SELECT count(*) FROM due) AS due, extract(epoch FROM coalesce(%(now)s, now()))::float8 AS clock) AS header
LEFT JOIN claimed ON true
WINDOW in_order AS (ORDER BY claimed.xid, seq)
ORDER BY claimed.xid, seq
