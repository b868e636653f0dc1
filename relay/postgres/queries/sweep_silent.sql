-- Free the expired locks of relays that fell silent lately, each from the lowest position that it reported and below a bound: never the
-- whole backlog. For some seconds after the lock time, in which the last of them expires, also what it holds apart, above that bound. Our
-- own too where own names us, after a claim whose answer was lost: what we hold is renewed in time.
WITH silent AS (
    SELECT id, low_xid, low_seq, id = %(own)s::int IS TRUE OR heartbeat_at
        BETWEEN clock.now - make_interval(secs => %(lock_seconds)s::float8 + %(apart)s::float8) AND clock.now - make_interval(secs => %(lock_seconds)s) AS apart
    FROM (SELECT coalesce(%(now)s, now()) AS now) AS clock, @schema@.queue_message_relay
    WHERE id = %(own)s::int
        OR heartbeat_at < clock.now - make_interval(secs => %(silence)s) AND heartbeat_at > clock.now - make_interval(secs => %(forgotten)s)
)
SELECT coalesce(sum(swept.released), 0)::bigint, coalesce(sum(swept.archived), 0)::bigint
FROM silent
CROSS JOIN LATERAL @schema@.queue_message_sweep(
    %(now)s::timestamptz, silent.id, silent.low_xid, silent.low_seq, %(below_xid)s::text::xid8, 0, 10000, silent.apart) AS swept
