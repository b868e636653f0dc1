-- What the report shows, for dashboards: results and dead messages of the history, a comparison with the time before, sizes, the state of the lake.

-- Messages by hour, exchange and routing key, as queue_message_stats_hour has them, with their sums.
CREATE VIEW @schema@.queue_message_stats_settled AS
    SELECT start, exchange, routing_key, published, discarded, dead.messages AS dead, published + discarded + dead.messages AS settled,
        attempts, within_target
    FROM @schema@.queue_message_stats_hour CROSS JOIN LATERAL (SELECT rejected + failed + lock_expired AS messages) AS dead;
COMMENT ON VIEW @schema@.queue_message_stats_settled IS 'Messages that came to an end, by hour, exchange and routing key: settled, and of them dead.';

-- code is null for a dead message that has none.
CREATE VIEW @schema@.queue_message_stats_dead AS
    SELECT start, exchange, routing_key, nullif(code.key, '') AS code, code.value::bigint AS messages
    FROM @schema@.queue_message_stats_hour CROSS JOIN LATERAL jsonb_each_text(codes) AS code;
COMMENT ON VIEW @schema@.queue_message_stats_dead IS 'Dead messages by hour, exchange, routing key and error code.';

-- Figures of a time and of the time of the same length before it, null where nothing was counted. Lengths are of seconds: a day of a session's
-- time zone may have 23 hours.
CREATE FUNCTION @schema@.queue_message_stats_compare(since timestamptz, until timestamptz)
RETURNS TABLE (figure text, value double precision, before double precision)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH counted AS (
        SELECT h.start >= since AS is_now, sum(h.published) AS published, sum(h.discarded) AS discarded,
            sum(h.rejected + h.failed + h.lock_expired) AS dead, sum(h.attempts) AS attempts, sum(h.within_target) AS within_target,
            @schema@.queue_message_buckets_sum(h.wait) AS wait, @schema@.queue_message_buckets_sum(h.publish) AS publish,
            @schema@.queue_message_buckets_sum(h.confirm) AS confirm
        FROM @schema@.queue_message_stats_hour h
        WHERE h.start >= since - make_interval(secs => extract(epoch FROM until - since)::double precision) AND h.start < until
        GROUP BY 1
    )
    SELECT one.figure, max(one.value) FILTER (WHERE c.is_now), max(one.value) FILTER (WHERE NOT c.is_now)
    FROM counted c CROSS JOIN LATERAL (VALUES
        (1, 'published', c.published::double precision),
        (2, 'discarded', c.discarded::double precision),
        (3, 'dead', c.dead::double precision),
        (4, 'tries each', (c.attempts / nullif(c.published + c.discarded + c.dead, 0))::double precision),
        (5, 'on time', (c.within_target / nullif(c.published, 0))::double precision),
        (6, 'wait p95 ms', @schema@.queue_message_percentile(c.wait, 0.95)),
        (7, 'publish p95 ms', @schema@.queue_message_percentile(c.publish, 0.95)),
        (8, 'confirm p95 ms', @schema@.queue_message_percentile(c.confirm, 0.95))
    ) AS one (place, figure, value)
    GROUP BY one.place, one.figure ORDER BY one.place
$body$;

-- Partitions of the archive with what they take, indexes and large values too. day: null for the dead side. rows: as PostgreSQL's statistics
-- have them, null before the first ones.
CREATE VIEW @schema@.queue_message_archive_size AS
    SELECT c.relname::text AS partition, CASE WHEN c.relname ~ '_[0-9]{8}$' THEN to_date(right(c.relname, 8), 'YYYYMMDD') END AS day,
        CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END AS rows, pg_total_relation_size(c.oid) AS bytes
    FROM pg_class c
    WHERE c.oid = to_regclass(format('%I.queue_message_dead', @schema_literal@::text))
       OR c.oid IN (SELECT i.inhrelid FROM pg_inherits i
                    WHERE i.inhparent = to_regclass(format('%I.queue_message_archive_daily', @schema_literal@::text)));
COMMENT ON VIEW @schema@.queue_message_archive_size IS 'Bytes, and about how many rows, of each partition of the archive.';

-- What the lake has, written by `relay pipeline metrics`, which sees both sides. name: of the table.
CREATE TABLE @schema@.queue_message_lake_day (
    name  text   NOT NULL,
    day   date   NOT NULL,
    files bigint NOT NULL,
    rows  bigint NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (name, day)
);
COMMENT ON TABLE @schema@.queue_message_lake_day IS 'Files, rows and bytes of each table of the lake, by day.';
-- job: exported, computed (the numbers) or compacted.
CREATE TABLE @schema@.queue_message_lake_job (
    job text        PRIMARY KEY,
    at  timestamptz NOT NULL
);
COMMENT ON TABLE @schema@.queue_message_lake_job IS 'When each job last changed the lake.';

CREATE VIEW @schema@.queue_message_lake_state AS
    SELECT d.files, d.rows, d.bytes, j.exported_at, j.computed_at, j.compacted_at,
        (SELECT max(e.compared_at) FROM @schema@.queue_message_export e) AS compared_at
    FROM (SELECT coalesce(sum(files), 0)::bigint AS files, coalesce(sum(rows) FILTER (WHERE name = 'archive'), 0)::bigint AS rows,
              coalesce(sum(bytes), 0)::bigint AS bytes FROM @schema@.queue_message_lake_day) AS d,
         (SELECT max(at) FILTER (WHERE job = 'exported') AS exported_at, max(at) FILTER (WHERE job = 'computed') AS computed_at,
              max(at) FILTER (WHERE job = 'compacted') AS compacted_at FROM @schema@.queue_message_lake_job) AS j;
COMMENT ON VIEW @schema@.queue_message_lake_state IS 'The whole lake in one row: its files and bytes, the rows of its archive, and when each job last did something.';

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_47;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_47() p
    UNION ALL VALUES
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_stats_settled, %1$I.queue_message_stats_dead, %1$I.queue_message_archive_size,
            %1$I.queue_message_lake_day, %1$I.queue_message_lake_job, %1$I.queue_message_lake_state'),
        ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_stats_compare'),
        ('queue_message_etl', 'SELECT ON %1$I.queue_message_stats_settled, %1$I.queue_message_stats_dead, %1$I.queue_message_archive_size,
            %1$I.queue_message_lake_state'),
        ('queue_message_etl', 'SELECT, INSERT, UPDATE, DELETE ON %1$I.queue_message_lake_day, %1$I.queue_message_lake_job'),
        ('queue_message_etl', 'EXECUTE ON FUNCTION %1$I.queue_message_stats_compare')
$body$;
