-- Every look at the queue has a bound: what status, gauges and the minute's chores walk does not grow with the queue. And a database clock that
-- is set back or forward neither keeps what a dead relay held nor lets retention drop more than is due.

-- How far each chore that walks the whole queue in pages has come. A walk begins anew after its last page.
CREATE TABLE @schema@.queue_message_walk (
    name text   PRIMARY KEY,
    xid  xid8   NOT NULL DEFAULT '0',
    seq  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO @schema@.queue_message_walk (name) VALUES ('sweep'), ('renotify'), ('reject_unprintable');

-- What chores saw of the database's clock. sweep: when, by the clock as it is now, one saw that the clock had been set back (moved_at), and
-- until when locks from before that may last (until). retention: until when it does not trust a clock that jumped ahead (until).
CREATE TABLE @schema@.queue_message_clock_seen (
    chore    text PRIMARY KEY,
    seen_at  timestamptz,
    moved_at timestamptz,
    until    timestamptz
) WITH (fillfactor = 50);
INSERT INTO @schema@.queue_message_clock_seen (chore) VALUES ('sweep'), ('retention');

-- Notes the time of a sweep, and whether the clock was set back by more than the lock time since the last one: then what a relay wrote last
-- lies in the future.
CREATE FUNCTION @schema@.queue_message_note_clock(clock timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    lock_time interval := make_interval(secs => @schema@.queue_message_setting_value('lock_seconds')::double precision);
    heard timestamptz := (SELECT max(r.heartbeat_at) FROM @schema@.queue_message_relay r);
    seen record;
BEGIN
    SELECT c.seen_at, c.moved_at, c.until INTO seen FROM @schema@.queue_message_clock_seen c WHERE c.chore = 'sweep' FOR UPDATE;
    IF seen.seen_at > clock + lock_time OR seen.moved_at IS NULL AND heard > clock + lock_time THEN
        seen.moved_at := clock;
        seen.until := greatest(seen.until, seen.seen_at, heard) + lock_time + interval '1 minute';
    ELSIF clock > seen.until THEN
        seen.moved_at := NULL;
        seen.until := NULL;
    END IF;
    UPDATE @schema@.queue_message_clock_seen c SET seen_at = clock, moved_at = seen.moved_at, until = seen.until WHERE c.chore = 'sweep';
END
$body$;

-- Whether a lock is over: its time has passed; or the clock was set back since it was taken, so that it lies further ahead than any lock
-- lasts, and its relay is silent. That is judged from the lock time after a sweep saw the change: by then a relay that lives has reported
-- anew. A lock without a token was set by hand: its own time alone counts.
CREATE FUNCTION @schema@.queue_message_lock_over(lock_expires_at timestamptz, lock_token uuid, locked_by integer, clock timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    lock_time interval;
BEGIN
    IF lock_expires_at <= clock OR lock_expires_at IS NULL OR lock_token IS NULL OR locked_by IS NULL
        OR NOT EXISTS (SELECT FROM @schema@.queue_message_clock_seen c WHERE c.chore = 'sweep' AND c.moved_at IS NOT NULL) THEN
        RETURN coalesce(lock_expires_at <= clock, false);
    END IF;
    lock_time := make_interval(secs => @schema@.queue_message_setting_value('lock_seconds')::double precision);
    RETURN lock_expires_at > clock + lock_time + interval '10 seconds'
        AND EXISTS (SELECT FROM @schema@.queue_message_clock_seen c WHERE c.chore = 'sweep' AND clock >= c.moved_at + lock_time)
        AND NOT EXISTS (SELECT FROM @schema@.queue_message_relay r
            WHERE r.id = locked_by AND r.heartbeat_at > clock - lock_time AND r.heartbeat_at < clock + lock_time);
END
$body$;

-- Frees these messages, whose locks are over. What comes back is due at once and keeps locked_by: that marks a suspect, which is
-- claimed alone from now on. A lock set by hand did not count an attempt when it was taken.
CREATE OR REPLACE FUNCTION @schema@.queue_message_sweep_free(expired uuid[], clock timestamptz, OUT released bigint, OUT archived bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    -- 'archive' is the strict convention: one lost lock, and the message is dead.
    allowed integer := CASE @schema@.queue_message_setting_value('on_lock_expired')
        WHEN 'archive' THEN 0 ELSE @schema@.queue_message_setting_value('max_attempts')::integer END;
    lost uuid[];
BEGIN
    UPDATE @schema@.queue_message m
    SET lock_expires_at = NULL, lock_token = NULL, locked_by = coalesce(m.locked_by, 0), available_at = clock,
        attempts = m.attempts + (m.locked_by IS NULL)::integer, last_error = format('lock expired at %s', m.lock_expires_at)
    WHERE m.id = ANY (expired) AND m.attempts + (m.locked_by IS NULL)::integer < allowed
        AND @schema@.queue_message_lock_over(m.lock_expires_at, m.lock_token, m.locked_by, clock);
    GET DIAGNOSTICS released = ROW_COUNT;
    lost := ARRAY(SELECT m.id FROM @schema@.queue_message m
                  WHERE m.id = ANY (expired) AND @schema@.queue_message_lock_over(m.lock_expires_at, m.lock_token, m.locked_by, clock));
    -- For no id at all PostgreSQL may walk the index of every ordered message: an empty list implies what that index asks for.
    archived := CASE WHEN cardinality(lost) = 0 THEN 0 ELSE @schema@.queue_message_sweep_dead(lost, clock) END;
END
$body$;

-- Frees the messages at these positions whose locks are over; whoever else has one locked is not waited for. Each is looked up by the primary
-- key: as a join PostgreSQL without statistics walked the whole queue and compared each of its messages with each position (500 of 50,000:
-- 17 s).
CREATE FUNCTION @schema@.queue_message_free_expired(
    xids xid8[], seqs bigint[], now timestamptz DEFAULT NULL, OUT released bigint, OUT archived bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
BEGIN
    SELECT f.released, f.archived INTO released, archived FROM @schema@.queue_message_sweep_free(ARRAY(
        SELECT one.id FROM unnest(xids, seqs) AS place (xid, seq) CROSS JOIN LATERAL (
            SELECT m.id FROM @schema@.queue_message m
            WHERE m.xid = place.xid AND m.seq = place.seq
                AND @schema@.queue_message_lock_over(m.lock_expires_at, m.lock_token, m.locked_by, clock)
            FOR UPDATE SKIP LOCKED) one), clock) f;
END
$body$;

-- A page of the queue, from where the last one ended: the positions of locks that are over, and where this page ends; null at the queue's end.
CREATE FUNCTION @schema@.queue_message_sweep_page(
    from_xid xid8, from_seq bigint, most integer, clock timestamptz, OUT xids xid8[], OUT seqs bigint[], OUT end_xid xid8, OUT end_seq bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
    SELECT array_agg(walked.xid) FILTER (WHERE walked.ended), array_agg(walked.seq) FILTER (WHERE walked.ended),
        max(walked.xid::text) FILTER (WHERE walked.place = queue_message_sweep_page.most)::xid8,
        max(walked.seq) FILTER (WHERE walked.place = queue_message_sweep_page.most)
    FROM (
        SELECT near.xid, near.seq, near.place,
            @schema@.queue_message_lock_over(near.lock_expires_at, near.lock_token, near.locked_by, queue_message_sweep_page.clock) AS ended
        FROM (SELECT m.xid, m.seq, m.lock_expires_at, m.lock_token, m.locked_by, row_number() OVER (ORDER BY m.xid, m.seq) AS place
              FROM @schema@.queue_message m
              WHERE (m.xid, m.seq) > (queue_message_sweep_page.from_xid, queue_message_sweep_page.from_seq)
              ORDER BY m.xid, m.seq LIMIT queue_message_sweep_page.most) near
        WHERE near.lock_expires_at IS NOT NULL OR near.place = queue_message_sweep_page.most) walked
$body$;

-- Positions of locks that are over beside the pages, for a queue that is longer than one: among the messages that came due first, the first
-- ordered ones, and those above the lowest position of relays that fell silent last.
CREATE FUNCTION @schema@.queue_message_sweep_near(clock timestamptz, OUT xids xid8[], OUT seqs bigint[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    WITH silent AS (
        SELECT r.low_xid, r.low_seq FROM @schema@.queue_message_relay r,
            make_interval(secs => @schema@.queue_message_setting_value('lock_seconds')::double precision) AS policy (lock_time)
        WHERE r.heartbeat_at <= queue_message_sweep_near.clock - policy.lock_time
            OR r.heartbeat_at >= queue_message_sweep_near.clock + policy.lock_time
        ORDER BY r.heartbeat_at DESC LIMIT 20
    ), near AS (
        (SELECT m.xid, m.seq, m.lock_expires_at, m.lock_token, m.locked_by FROM @schema@.queue_message m
         WHERE m.available_at <= queue_message_sweep_near.clock ORDER BY m.available_at LIMIT 10000)
        UNION ALL
        (SELECT m.xid, m.seq, m.lock_expires_at, m.lock_token, m.locked_by FROM @schema@.queue_message m
         WHERE m.ordering_key IS NOT NULL ORDER BY m.xid, m.seq, m.lane LIMIT 10000)
        UNION ALL
        SELECT held.* FROM silent CROSS JOIN LATERAL (
            SELECT m.xid, m.seq, m.lock_expires_at, m.lock_token, m.locked_by FROM @schema@.queue_message m
            WHERE (m.xid, m.seq) >= (silent.low_xid, silent.low_seq) ORDER BY m.xid, m.seq LIMIT 10000) held
    ), ended AS (
        SELECT DISTINCT near.xid, near.seq FROM near
        WHERE near.lock_expires_at IS NOT NULL
            AND @schema@.queue_message_lock_over(near.lock_expires_at, near.lock_token, near.locked_by, queue_message_sweep_near.clock)
        LIMIT 10000
    )
    SELECT array_agg(ended.xid), array_agg(ended.seq) FROM ended
$body$;

-- The minute's sweep without a relay: the next 100,000 messages in claim order, at most 10,000 of which are freed, and beside them what dead
-- relays hold as a rule. One at a time; who finds another at it leaves it to that one.
CREATE OR REPLACE FUNCTION @schema@.queue_message_sweep_minute(now timestamptz DEFAULT NULL, OUT released bigint, OUT archived bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    most constant integer := 100000;
    at_once constant integer := 10000;
    begun record;
    page record;
    near record;
BEGIN
    released := 0;
    archived := 0;
    SELECT w.xid, w.seq INTO begun FROM @schema@.queue_message_walk w WHERE w.name = 'sweep' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM @schema@.queue_message_note_clock(clock);
    SELECT * INTO page FROM @schema@.queue_message_sweep_page(begun.xid, begun.seq, most, clock);
    -- What is found beyond as many as go at once begins the next page.
    IF cardinality(page.xids) > at_once THEN
        page.end_xid := page.xids[at_once];
        page.end_seq := page.seqs[at_once];
        page.xids := page.xids[:at_once];
        page.seqs := page.seqs[:at_once];
    END IF;
    IF begun.xid > '0' OR page.end_xid IS NOT NULL THEN
        SELECT * INTO near FROM @schema@.queue_message_sweep_near(clock);
        page.xids := page.xids || near.xids;
        page.seqs := page.seqs || near.seqs;
    END IF;
    SELECT f.released, f.archived INTO released, archived FROM @schema@.queue_message_free_expired(page.xids, page.seqs, now) f;
    UPDATE @schema@.queue_message_walk w SET xid = coalesce(page.end_xid, '0'), seq = coalesce(page.end_seq, 0) WHERE w.name = 'sweep';
END
$body$;

-- A content of a few bytes may be a gigabyte as text (1e131071, ten thousand times), and a claim that meets it fails with everything beside
-- it. Tries messages one by one and archives those that cannot be printed; returns how many: most that came due first, most from where each
-- living relay claims next, and a page of the whole queue, so that calls come to every message in the end.
-- A server that has no memory for it just now says so by another error, and nothing is archived for that.
CREATE OR REPLACE FUNCTION @schema@.queue_message_reject_unprintable(most integer DEFAULT 20000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    begun record;
    one record;
    last record;
    walked integer := 0;
    rejected bigint := 0;
BEGIN
    SELECT w.xid, w.seq INTO begun FROM @schema@.queue_message_walk w WHERE w.name = 'reject_unprintable' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    FOR one IN
        (SELECT m.xid, m.seq, m.id, m.content, m.lock_expires_at, false AS page FROM @schema@.queue_message m
         WHERE m.available_at <= now() ORDER BY m.available_at LIMIT most)
        UNION ALL
        SELECT next.* FROM @schema@.queue_message_claim_places() AS place (xid, seq) CROSS JOIN LATERAL (
            SELECT m.xid, m.seq, m.id, m.content, m.lock_expires_at, false FROM @schema@.queue_message m
            WHERE (m.xid, m.seq) > (place.xid, place.seq) ORDER BY m.xid, m.seq LIMIT most) next
        UNION ALL
        (SELECT m.xid, m.seq, m.id, m.content, m.lock_expires_at, true FROM @schema@.queue_message m
         WHERE (m.xid, m.seq) > (begun.xid, begun.seq) ORDER BY m.xid, m.seq LIMIT most)
    LOOP
        IF one.page THEN
            walked := walked + 1;
            last := one;
        END IF;
        CONTINUE WHEN one.lock_expires_at IS NOT NULL;
        BEGIN
            PERFORM octet_length(one.content::text);
        EXCEPTION WHEN program_limit_exceeded THEN
            rejected := rejected + @schema@.queue_message_archive_now(
                ARRAY[one.id], 'rejected', 'content_unprintable', 'content is larger than a gigabyte as text: write its numbers shorter.', 'relay');
        END;
    END LOOP;
    IF walked < most THEN
        UPDATE @schema@.queue_message_walk w SET xid = '0', seq = 0 WHERE w.name = 'reject_unprintable';
    ELSE
        UPDATE @schema@.queue_message_walk w SET xid = last.xid, seq = last.seq WHERE w.name = 'reject_unprintable';
    END IF;
    RETURN rejected;
END
$body$;

-- Where living relays may claim next: the lowest position of any, held exchanges included, and the highest head.
CREATE FUNCTION @schema@.queue_message_claim_places() RETURNS TABLE (xid xid8, seq bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH living AS (
        SELECT r.low_xid, r.low_seq, r.head_xid, r.head_seq, r.top_xid, r.top_seq FROM @schema@.queue_message_relay r,
            make_interval(secs => @schema@.queue_message_setting_value('lock_seconds')::double precision) AS policy (lock_time)
        WHERE r.heartbeat_at > now() - policy.lock_time AND r.heartbeat_at < now() + policy.lock_time
    ), place AS (
        SELECT p.xid, p.seq FROM living CROSS JOIN LATERAL (VALUES (living.low_xid, living.low_seq), (living.head_xid, living.head_seq)) AS p (xid, seq)
    )
    (SELECT place.xid, place.seq FROM place ORDER BY place.xid, place.seq LIMIT 1)
    UNION
    (SELECT living.top_xid, living.top_seq FROM living ORDER BY living.top_xid DESC, living.top_seq DESC LIMIT 1)
$body$;

-- Mode always: notifies again up to 1,000 messages that nobody has claimed, the oldest first; returns how many. It looks at 50,000 messages
-- a call; where they hold fewer, the next call goes on behind them, and begins anew after 1,000 or at the end.
CREATE OR REPLACE FUNCTION @schema@.queue_message_renotify() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    most constant integer := 50000;
    begun record;
    page record;
BEGIN
    IF @schema@.queue_message_setting_value('notify') <> 'always' OR pg_notification_queue_usage() > 0.5 THEN
        RETURN 0;
    END IF;
    SELECT w.xid, w.seq INTO begun FROM @schema@.queue_message_walk w WHERE w.name = 'renotify' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    SELECT coalesce(array_agg(near.id) FILTER (WHERE near.free), '{}') AS ids,
        max(near.xid::text) FILTER (WHERE near.place = most)::xid8 AS xid, max(near.seq) FILTER (WHERE near.place = most) AS seq
    INTO page
    FROM (SELECT m.xid, m.seq, m.id, row_number() OVER (ORDER BY m.xid, m.seq) AS place,
              m.lock_expires_at IS NULL AND (m.available_at IS NULL OR m.available_at <= now()) AS free
          FROM @schema@.queue_message m WHERE (m.xid, m.seq) > (begun.xid, begun.seq) ORDER BY m.xid, m.seq LIMIT most) near
    WHERE near.free OR near.place = most;
    PERFORM pg_notify('queue_message_notify', @schema@.queue_message_payload(oldest, 'queue_message')) FROM unnest(page.ids[:1000]) AS oldest;
    IF cardinality(page.ids) >= 1000 OR page.xid IS NULL THEN
        page.xid := '0';
        page.seq := 0;
    END IF;
    UPDATE @schema@.queue_message_walk w SET xid = page.xid, seq = page.seq WHERE w.name = 'renotify' AND (w.xid, w.seq) <> (page.xid, page.seq);
    RETURN least(cardinality(page.ids), 1000);
END
$body$;

-- Relays that run or ran lately. alive: heard from within the lock time, and not left; a report from further ahead than that was written
-- before the clock was set back. Of one that is not, what it last said is no longer
-- true: it has no lanes and no state but that it left. kept: how many messages still carry its lock, looked for among the 100,000 from its
-- lowest position on; null for the living, and for those silent for five minutes longer, whose locks others have long freed.
CREATE OR REPLACE VIEW @schema@.queue_message_relay_state AS
    SELECT r.id, r.name, r.version, r.host, r.pid, r.started_at, r.heartbeat_at, lately.silent_for, life.alive,
        CASE WHEN life.alive THEN
            (SELECT count(*) FROM @schema@.queue_message_lane l WHERE l.owner = r.id AND l.lease_expires_at > now()) ELSE 0 END AS lanes,
        CASE WHEN life.alive OR lately.has_left THEN r.state ELSE '{}' END AS state,
        CASE WHEN NOT life.alive AND (lately.has_left OR lately.silent_for <= lately.lock_time + interval '5 minutes') THEN
            (SELECT count(*) FROM (SELECT m.locked_by, m.lock_expires_at FROM @schema@.queue_message m
                                   WHERE (m.xid, m.seq) >= (r.low_xid, r.low_seq) ORDER BY m.xid, m.seq LIMIT 100000) near
             WHERE near.locked_by = r.id AND near.lock_expires_at IS NOT NULL) END AS kept
    FROM @schema@.queue_message_relay r
    CROSS JOIN LATERAL (
        SELECT now() - r.heartbeat_at AS silent_for, r.state ? 'left' AS has_left,
            make_interval(secs => @schema@.queue_message_setting_value('lock_seconds')::double precision) AS lock_time) lately
    CROSS JOIN LATERAL (SELECT lately.silent_for < lately.lock_time AND lately.silent_for > -lately.lock_time AND NOT lately.has_left AS alive) life;

-- Counts of the queue. A large queue is not walked for them: then (counted is false) waiting comes from the statistics, locked from what the
-- living relays say that they have in flight and from one look for what those that fell silent lately have kept, and delayed is counted up
-- to 10,000 and estimated beyond.
CREATE OR REPLACE FUNCTION @schema@.queue_message_count(OUT counted boolean, OUT waiting bigint, OUT locked bigint, OUT delayed bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    queue regclass := format('%I.queue_message', @schema_literal@::text)::regclass;
BEGIN
    counted := pg_relation_size(queue) < 128 * 1024 * 1024;
    IF counted THEN
        SELECT count(*), count(m.lock_expires_at), count(*) FILTER (WHERE m.available_at > now() AND m.lock_expires_at IS NULL)
        INTO waiting, locked, delayed FROM @schema@.queue_message m;
        RETURN;
    END IF;
    SELECT greatest(s.n_live_tup, 0) INTO waiting FROM pg_stat_all_tables s WHERE s.relid = queue;
    SELECT coalesce(sum((s.state -> 'in_flight')::bigint) FILTER (WHERE s.alive AND jsonb_typeof(s.state -> 'in_flight') = 'number'), 0)
    INTO locked FROM @schema@.queue_message_relay_state s;
    locked := locked + @schema@.queue_message_kept();
    delayed := least(@schema@.queue_message_delayed(waiting), waiting);
END
$body$;

-- How many messages carry the lock of a relay that fell silent lately, looked for among the 100,000 from the lowest position of any on: one
-- walk for all of them. What they kept is looked for, so it is left out as soon as the others have freed it.
CREATE FUNCTION @schema@.queue_message_kept() RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
    WITH silent AS MATERIALIZED (
        SELECT r.id, r.low_xid, r.low_seq
        FROM @schema@.queue_message_relay_state s JOIN @schema@.queue_message_relay r ON r.id = s.id,
            make_interval(secs => @schema@.queue_message_setting_value('lock_seconds')::double precision) AS policy (lock_time)
        WHERE NOT s.alive AND s.silent_for < policy.lock_time + interval '1 minute'
    ), low AS (
        SELECT silent.low_xid AS xid, silent.low_seq AS seq FROM silent ORDER BY silent.low_xid, silent.low_seq LIMIT 1
    )
    SELECT count(*) FROM low CROSS JOIN LATERAL (
        SELECT m.locked_by, m.lock_expires_at FROM @schema@.queue_message m
        WHERE (m.xid, m.seq) >= (low.xid, low.seq) ORDER BY m.xid, m.seq LIMIT 100000) near
    WHERE near.lock_expires_at IS NOT NULL AND near.locked_by IN (SELECT silent.id FROM silent)
$body$;

-- Messages that wait for their time: counted where they are at most 10,000 and few dead rows stand between them; else the share of those that
-- wait, by the statistics of ANALYZE.
CREATE FUNCTION @schema@.queue_message_delayed(waiting bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    most constant integer := 10000;
    queue regclass := format('%I.queue_message', @schema_literal@::text)::regclass;
    looked bigint;
    found bigint := 0;
BEGIN
    IF (SELECT s.n_dead_tup < 1000000 FROM pg_stat_all_tables s WHERE s.relid = queue) THEN
        SELECT count(*), count(*) FILTER (WHERE near.lock_expires_at IS NULL) INTO looked, found FROM (
            SELECT m.lock_expires_at FROM @schema@.queue_message m WHERE m.available_at > now() ORDER BY m.available_at LIMIT most + 1) near;
        IF looked <= most THEN
            RETURN found;
        END IF;
    END IF;
    RETURN greatest(found, (@schema@.queue_message_delayed_share() * waiting)::bigint);
END
$body$;

-- The share of the queue that waits for a time to come, by its statistics; 0 before the first ANALYZE. Their texts are read as they are
-- written.
CREATE FUNCTION @schema@.queue_message_delayed_share() RETURNS double precision
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' SET timezone = 'UTC' AS $body$
    SELECT coalesce(sum(common.later + greatest(1 - s.null_frac - common.whole, 0) * spread.later), 0)::double precision
    FROM pg_stats s
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(frequency) FILTER (WHERE value > now()), 0) AS later, coalesce(sum(frequency), 0) AS whole
        FROM unnest(s.most_common_vals::text::timestamptz[], s.most_common_freqs) AS one (value, frequency)) common
    CROSS JOIN LATERAL (
        SELECT coalesce(avg((value > now())::integer), 0) AS later FROM unnest(s.histogram_bounds::text::timestamptz[]) AS value) spread
    WHERE s.schemaname = @schema_literal@ AND s.tablename = 'queue_message' AND s.attname = 'available_at' AND NOT s.inherited
$body$;

-- When the oldest message that could be claimed was inserted; null where none is found. It is looked for among 10,000 messages in each of
-- these places: from the lowest position at which a living relay may still claim, held exchanges included, and from the highest; with no
-- living relay from the first and from the last message of all; the ordered ones; those that came due first.
-- By index only, as claims are planned: without statistics PostgreSQL would read the whole table.
CREATE OR REPLACE FUNCTION @schema@.queue_message_oldest() RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
    WITH place AS MATERIALIZED (SELECT p.xid, p.seq FROM @schema@.queue_message_claim_places() p)
    SELECT least(
        (SELECT min(first.created_at) FROM (TABLE place UNION ALL SELECT '0', 0 WHERE NOT EXISTS (TABLE place)) AS begun
         CROSS JOIN LATERAL (
            SELECT near.created_at FROM (
                SELECT m.created_at, m.lock_expires_at, m.available_at FROM @schema@.queue_message m
                WHERE (m.xid, m.seq) >= (begun.xid, begun.seq) ORDER BY m.xid, m.seq LIMIT 10000) near
            WHERE near.lock_expires_at IS NULL AND near.available_at IS NULL LIMIT 1) first),
        (SELECT min(near.created_at) FROM (
            SELECT m.created_at, m.lock_expires_at, m.available_at FROM @schema@.queue_message m
            WHERE NOT EXISTS (TABLE place) ORDER BY m.xid DESC, m.seq DESC LIMIT 10000) near
         WHERE near.lock_expires_at IS NULL AND near.available_at IS NULL),
        (SELECT near.created_at FROM (
            SELECT m.created_at, m.lock_expires_at, m.available_at FROM @schema@.queue_message m
            WHERE m.ordering_key IS NOT NULL ORDER BY m.xid, m.seq, m.lane LIMIT 10000) near
         WHERE near.lock_expires_at IS NULL AND near.available_at IS NULL LIMIT 1),
        (SELECT near.available_at FROM (
            SELECT m.available_at, m.lock_expires_at FROM @schema@.queue_message m
            WHERE m.available_at <= now() ORDER BY m.available_at LIMIT 10000) near
         WHERE near.lock_expires_at IS NULL LIMIT 1))
$body$;

-- Ordering keys whose head waits for a time to come, of the 10,000 messages that come due next. As claims are planned, like the others here:
-- in a view PostgreSQL might read the whole queue for it.
CREATE FUNCTION @schema@.queue_message_waiting_heads() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
    SELECT near.ordering_key FROM (
        SELECT m.ordering_key, m.lock_expires_at, m.xid, m.seq FROM @schema@.queue_message m
        WHERE m.available_at > now() ORDER BY m.available_at LIMIT 10000) near
    WHERE near.ordering_key IS NOT NULL AND near.lock_expires_at IS NULL
      AND NOT EXISTS (SELECT FROM @schema@.queue_message e
                      WHERE e.ordering_key = near.ordering_key AND (e.xid, e.seq) < (near.xid, near.seq))
$body$;

-- Ordering keys that wait: parked, or their head waits for its next attempt or its own time, or the exchange of their head is paused (then
-- held_at, held_by and reason are the pause's). behind: messages that wait for the head, counted up to 10,000. Heads that wait are looked for
-- among the 10,000 messages that come due next, heads of paused exchanges among the first 10,000 keys, by one look a key along the index of
-- keys and only while something is paused; parked keys are all here.
CREATE OR REPLACE VIEW @schema@.queue_message_blocked_key AS
    WITH RECURSIVE head AS (
        (SELECT m.ordering_key, m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.lock_expires_at, m.last_error, 1 AS place
         FROM @schema@.queue_message m
         WHERE m.ordering_key IS NOT NULL AND EXISTS (SELECT FROM @schema@.queue_message_pause)
         ORDER BY m.ordering_key, m.xid, m.seq LIMIT 1)
        UNION ALL
        SELECT n.* FROM head CROSS JOIN LATERAL (
            SELECT m.ordering_key, m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.lock_expires_at, m.last_error,
                head.place + 1
            FROM @schema@.queue_message m WHERE head.place < 10000 AND m.ordering_key > head.ordering_key ORDER BY m.ordering_key, m.xid, m.seq LIMIT 1) n
    )
    SELECT head.ordering_key, 'exchange paused' AS why, head.id AS head_id, head.exchange, head.routing_key, head.attempts, head.available_at,
        head.last_error, p.paused_at AS held_at, p.paused_by AS held_by, p.reason,
        (SELECT count(*) FROM (SELECT FROM @schema@.queue_message b WHERE b.ordering_key = head.ordering_key LIMIT 10001) AS first) - 1 AS behind
    FROM head JOIN @schema@.queue_message_pause p ON p.exchange = head.exchange
    WHERE head.lock_expires_at IS NULL AND (head.available_at IS NULL OR head.available_at <= now())
      AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold h WHERE h.ordering_key = head.ordering_key)
    UNION ALL
    SELECT k.ordering_key, CASE WHEN h.ordering_key IS NOT NULL THEN 'parked' ELSE 'head waits' END AS why,
        head.id AS head_id, head.exchange, head.routing_key, head.attempts, head.available_at, head.last_error,
        h.held_at, h.held_by, h.reason,
        greatest((SELECT count(*) FROM (SELECT FROM @schema@.queue_message b WHERE b.ordering_key = k.ordering_key LIMIT 10001) AS first) - 1, 0) AS behind
    FROM (
        SELECT w.ordering_key FROM @schema@.queue_message_waiting_heads() AS w (ordering_key)
        UNION SELECT ordering_key FROM @schema@.queue_message_key_hold
    ) k
    LEFT JOIN @schema@.queue_message_key_hold h ON h.ordering_key = k.ordering_key
    LEFT JOIN LATERAL (SELECT m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.last_error FROM @schema@.queue_message m
                       WHERE m.ordering_key = k.ordering_key ORDER BY m.xid, m.seq LIMIT 1) head ON true;

-- What came back from an expired lock and goes one by one, by the rule of due_suspect; among the 10,000 messages that came due first and the
-- 10,000 that came due last.
CREATE FUNCTION @schema@.queue_message_suspects() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    SELECT count(*) FROM (
        (SELECT m.xid, m.seq, m.lock_expires_at, m.locked_by, m.attempts FROM @schema@.queue_message m
         WHERE m.available_at <= now() ORDER BY m.available_at LIMIT 10000)
        UNION
        (SELECT m.xid, m.seq, m.lock_expires_at, m.locked_by, m.attempts FROM @schema@.queue_message m
         WHERE m.available_at <= now() ORDER BY m.available_at DESC LIMIT 10000)) near
    WHERE near.lock_expires_at IS NULL AND near.locked_by IS NOT NULL AND near.attempts >
        (SELECT CASE WHEN @schema@.queue_message_setting_value('max_attempts')::integer >= 4 THEN 1 ELSE 0 END)
$body$;

-- Dead messages that nobody has acknowledged, of the 20,000 newest. By way of the whole archive, so that its lock comes before that of a part,
-- as it does for settles and for LOCK TABLE: the export's lag reads the whole, and parts first would be a deadlock with whoever locks the
-- archive.
CREATE FUNCTION @schema@.queue_message_dead_open() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
    SELECT count(*) FROM (
        SELECT d.xid, d.seq FROM @schema@.queue_message_archive d WHERE d.result IN ('rejected', 'failed', 'lock_expired')
        ORDER BY d.archived_at DESC LIMIT 20000) dead
    WHERE NOT EXISTS (SELECT FROM @schema@.queue_message_dead_ack a WHERE (a.xid, a.seq) = (dead.xid, dead.seq))
$body$;

-- The whole outbox in one row.
CREATE OR REPLACE VIEW @schema@.queue_message_status AS
    SELECT n.waiting, n.locked, n.delayed, greatest(n.waiting - n.locked - n.delayed, 0) AS ready, n.counted,
        greatest(extract(epoch FROM now() - CASE WHEN isfinite(o.since) THEN o.since END), 0)::double precision AS oldest_seconds,
        @schema@.queue_message_dead_open() AS dead_unacknowledged,
        (SELECT count(*) FROM @schema@.queue_message_blocked_key k WHERE k.why <> 'exchange paused') AS blocked_keys,
        (SELECT count(*) FROM @schema@.queue_message_pause) AS paused_exchanges,
        (SELECT count(*) FROM @schema@.queue_message_limit) AS limited_exchanges,
        @schema@.queue_message_suspects() AS suspects,
        (SELECT count(*) FROM @schema@.queue_message_relay_state s WHERE s.alive) AS relays_alive,
        @schema@.queue_message_days_ahead() AS partition_days_ahead,
        pg_notification_queue_usage() AS notification_queue_usage,
        -- Of a registered export; of what it compared, only partitions that are still here.
        @schema@.queue_message_export_lag() AS export_lag_seconds,
        @schema@.queue_message_days_unverified() AS export_unverified_days,
        (SELECT count(*) FROM @schema@.queue_message_export e WHERE e.difference IS NOT NULL
         AND to_regclass(format('%I.%I', @schema_literal@::text, e.partition)) IS NOT NULL) AS export_differing_partitions
    FROM @schema@.queue_message_count() n, @schema@.queue_message_oldest() AS o (since);

-- Whether retention must not trust the clock: more than three hours lie between two runs, so that it was set ahead, or nobody ran. Then it waits
-- for a day by the clock as it is now, in which a wrong one is noticed. What is set back is trusted: less is due.
CREATE FUNCTION @schema@.queue_message_clock_jumped(clock timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    seen record;
BEGIN
    SELECT c.seen_at, c.until INTO seen FROM @schema@.queue_message_clock_seen c WHERE c.chore = 'retention';
    IF clock > seen.seen_at + interval '3 hours' THEN
        seen.until := clock + interval '1 day';
        RAISE WARNING 'Retention last looked at %, and now it is %: nothing is dropped before %.', seen.seen_at, clock, seen.until
            USING HINT = 'If the clock is right, all is well; otherwise set it.';
    ELSIF clock < seen.seen_at - interval '3 hours' OR clock >= seen.until THEN
        seen.until := NULL;
    END IF;
    -- Who finds another at it has nothing to note, and waits for nobody's DROP.
    PERFORM FROM @schema@.queue_message_clock_seen c WHERE c.chore = 'retention' FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE @schema@.queue_message_clock_seen c SET seen_at = clock, until = seen.until WHERE c.chore = 'retention';
    END IF;
    RETURN seen.until IS NOT NULL;
END
$body$;

-- Deletes a batch of old dead messages and drops at most one day that is past its retention; returns what it did and what stood in its way.
-- One day for each call, so for each transaction, and last: DROP makes every settle wait, and its lock is held until the commit.
-- Call again after 'dropped'. Nothing goes ('distrusted') for a day after the clock jumped ahead.
CREATE OR REPLACE FUNCTION @schema@.queue_message_retain(now timestamptz DEFAULT NULL)
RETURNS TABLE (action text, target text, messages bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    dead_days integer := @schema@.queue_message_setting_value('dead_retention_days')::integer;
    exported boolean := @schema@.queue_message_setting_value('export_registered')::boolean;
BEGIN
    IF @schema@.queue_message_clock_jumped(clock) THEN
        action := 'distrusted';
        target := 'clock';
        RETURN NEXT;
        RETURN;
    END IF;
    IF dead_days > 0 THEN
        action := 'deleted';
        target := 'queue_message_dead';
        messages := @schema@.queue_message_delete_dead(clock - make_interval(days => dead_days), exported);
        IF messages > 0 THEN
            RETURN NEXT;
        END IF;
    END IF;
    action := 'deleted';
    target := 'queue_message_received';
    messages := @schema@.queue_message_delete_received(clock);
    IF messages > 0 THEN
        RETURN NEXT;
    END IF;
    action := 'deleted';
    target := 'queue_message_dedup';
    messages := @schema@.queue_message_delete_keys(clock);
    IF messages > 0 THEN
        RETURN NEXT;
    END IF;
    FOR target IN SELECT o FROM @schema@.queue_message_old_days(clock) o LOOP
        SELECT d.action, d.messages INTO action, messages FROM @schema@.queue_message_drop_day(target, exported) d;
        RETURN NEXT;
        EXIT WHEN action IN ('dropped', 'busy');
    END LOOP;
END
$body$;

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_25;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_25() p
    UNION ALL VALUES
        ('queue_message_relay', 'EXECUTE ON FUNCTION %1$I.queue_message_free_expired, %1$I.queue_message_suspects,
            %1$I.queue_message_waiting_heads, %1$I.queue_message_dead_open'),
        ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_free_expired, %1$I.queue_message_suspects,
            %1$I.queue_message_waiting_heads, %1$I.queue_message_dead_open'),
        ('queue_message_etl', 'EXECUTE ON FUNCTION %1$I.queue_message_suspects, %1$I.queue_message_waiting_heads, %1$I.queue_message_dead_open')
$body$;
