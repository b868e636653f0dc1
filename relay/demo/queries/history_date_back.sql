-- Spreads what was archived since a time over some days, more of it at midday than at night. Each row keeps all its times and its receipts.
-- Only a demo does this: in one transaction of a superuser whose session_replication_role is replica, for the archive refuses an UPDATE.
WITH numbered AS (
    SELECT xid, seq, archived_at, (row_number() OVER (ORDER BY archived_at, xid, seq) - 0.5) / count(*) OVER () * %(days)s AS place
    FROM queue_message_archive WHERE archived_at >= %(since)s
), placed AS (
    SELECT xid, seq, archived_at, floor(place) AS day, (place - floor(place))::float8 AS part FROM numbered
), shifts AS (
    SELECT xid, seq,
        %(first)s + make_interval(secs => 86400 * (day + part + 0.8 * sin(2 * pi() * part) / (2 * pi()))) - archived_at AS shift
    FROM placed
), moved AS (
    UPDATE queue_message_archive AS archived
    SET created_at = created_at + shift, available_at = available_at + shift, expires_at = expires_at + shift,
        claimed_at = claimed_at + shift, published_at = published_at + shift, confirmed_at = confirmed_at + shift,
        archived_at = archived_at + shift
    FROM shifts WHERE (archived.xid, archived.seq) = (shifts.xid, shifts.seq)
    RETURNING archived.id, shift
), received AS (
    UPDATE queue_message_receipt SET received_at = received_at + shift FROM moved WHERE message_id = moved.id
)
SELECT count(*) FROM moved
