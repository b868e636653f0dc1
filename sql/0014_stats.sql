-- Numbers of the history, written by `relay pipeline metrics` for dashboards that only know SQL: windows of 5 minutes, hours and days
-- (UTC). Each is computed from the archive in the lake, so days that retention has dropped here keep theirs.

-- Upper bounds in milliseconds of the buckets of wait, publish and confirm, each belonging to its bucket; one open bucket follows.
CREATE FUNCTION @schema@.queue_message_bucket_bounds() RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT '{1,2,3,5,7,10,15,20,30,50,70,100,150,200,300,500,700,1000,1500,2000,3000,5000,7000,10000,15000,20000,30000,60000,120000,300000,600000,1800000,3600000,86400000}'::bigint[]
$body$;

-- start: of the window, by archived_at. routing_key: '*other*' for those beyond the keys that the day names for the exchange.
-- codes: dead messages by error code. wait: due until claimed; publish: claimed until written to the broker; confirm: until its confirm.
-- within_target: published messages whose confirm came within target_ms from the time they were due.
CREATE TABLE @schema@.queue_message_stats_window (
    start         timestamptz NOT NULL,
    exchange      text        NOT NULL,
    routing_key   text        NOT NULL,
    published     bigint      NOT NULL,
    discarded     bigint      NOT NULL,
    rejected      bigint      NOT NULL,
    failed        bigint      NOT NULL,
    lock_expired  bigint      NOT NULL,
    attempts      bigint      NOT NULL,
    codes         jsonb       NOT NULL,
    wait          bigint[]    NOT NULL,
    publish       bigint[]    NOT NULL,
    confirm       bigint[]    NOT NULL,
    within_target bigint      NOT NULL,
    target_ms     bigint      NOT NULL,
    PRIMARY KEY (start, exchange, routing_key)
);
CREATE TABLE @schema@.queue_message_stats_hour (LIKE @schema@.queue_message_stats_window INCLUDING ALL);
CREATE TABLE @schema@.queue_message_stats_day (LIKE @schema@.queue_message_stats_window INCLUDING ALL);

COMMENT ON TABLE @schema@.queue_message_stats_window IS 'What was settled in each 5 minutes, by exchange and routing key, with latencies as histograms.';
COMMENT ON TABLE @schema@.queue_message_stats_hour IS 'queue_message_stats_window added up by hour.';
COMMENT ON TABLE @schema@.queue_message_stats_day IS 'queue_message_stats_window added up by UTC day.';

-- Milliseconds that a share (0 to 1) of the counted messages did not exceed, wrong by less than its bucket's width; null where nothing was
-- counted.
CREATE FUNCTION @schema@.queue_message_percentile(buckets bigint[], share double precision) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $body$
#variable_conflict use_variable
DECLARE
    bounds bigint[] := @schema@.queue_message_bucket_bounds();
    total bigint := (SELECT coalesce(sum(n), 0) FROM unnest(buckets) n);
    rank double precision := greatest(ceil(least(greatest(share, 0), 1) * total), 1);
    below bigint := 0;
    lower bigint := 0;
BEGIN
    IF total = 0 OR share IS NULL THEN
        RETURN NULL;
    END IF;
    FOR number IN 1 .. cardinality(buckets) LOOP
        IF buckets[number] > 0 AND below + buckets[number] >= rank THEN
            RETURN lower + coalesce((bounds[number] - lower) * ((rank - below) / buckets[number]), 0);
        END IF;
        below := below + buckets[number];
        lower := bounds[number];
    END LOOP;
END
$body$;

CREATE FUNCTION @schema@.queue_message_buckets_add(one bigint[], other bigint[]) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT AS $body$
#variable_conflict use_variable
BEGIN
    FOR number IN 1 .. greatest(cardinality(one), cardinality(other)) LOOP
        one[number] := coalesce(one[number], 0) + coalesce(other[number], 0);
    END LOOP;
    RETURN one;
END
$body$;

-- Histograms of several rows as one: queue_message_percentile(queue_message_buckets_sum(wait), 0.95).
CREATE AGGREGATE @schema@.queue_message_buckets_sum(bigint[]) (
    SFUNC = @schema@.queue_message_buckets_add, STYPE = bigint[], COMBINEFUNC = @schema@.queue_message_buckets_add, PARALLEL = SAFE
);
