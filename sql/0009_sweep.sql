-- Expired locks: back to the queue with the attempt counted, or to the archive. Run by living relays and by pg_cron.

-- Frees up to most messages whose lock has expired; call again while it returns that many.
-- holder narrows it to one relay's locks; from and below narrow it to positions (from included, below not). With apart also the holder's
-- locks that stand elsewhere: on waiting and on ordered messages, which are claimed wherever they stand.
CREATE FUNCTION @schema@.queue_message_sweep(
    now timestamptz DEFAULT NULL, holder integer DEFAULT NULL, from_xid xid8 DEFAULT '0', from_seq bigint DEFAULT 0,
    below_xid xid8 DEFAULT NULL, below_seq bigint DEFAULT 0, most integer DEFAULT 1000, apart boolean DEFAULT false,
    OUT released bigint, OUT archived bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    expired uuid[];
BEGIN
    expired := ARRAY(
        SELECT m.id FROM @schema@.queue_message m
        WHERE m.lock_expires_at <= clock AND (m.xid, m.seq) >= (from_xid, from_seq)
          AND (below_xid IS NULL OR (m.xid, m.seq) < (below_xid, below_seq))
          AND (holder IS NULL OR m.locked_by = holder)
        ORDER BY m.xid, m.seq LIMIT most FOR UPDATE SKIP LOCKED);
    IF apart THEN
        expired := expired || @schema@.queue_message_expired_apart(clock, holder, from_xid, from_seq, most);
    END IF;
    SELECT f.released, f.archived INTO released, archived FROM @schema@.queue_message_sweep_free(expired, clock) f;
END
$body$;

-- Messages that a holder claimed by an index of their own and whose lock has expired, locked for their sweep: those that waited (a claim
-- leaves available_at as it is), and ordered ones from a position on. By these indexes only, whatever the planner knows of the table.
CREATE FUNCTION @schema@.queue_message_expired_apart(clock timestamptz, holder integer, from_xid xid8, from_seq bigint, most integer) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
#variable_conflict use_variable
BEGIN
    RETURN ARRAY(
        SELECT m.id FROM @schema@.queue_message m
        WHERE m.available_at <= clock AND m.lock_expires_at <= clock AND m.locked_by = holder
        ORDER BY m.available_at LIMIT most FOR UPDATE SKIP LOCKED)
    || ARRAY(
        SELECT m.id FROM @schema@.queue_message m
        WHERE m.ordering_key IS NOT NULL AND (m.xid, m.seq) >= (from_xid, from_seq) AND m.lock_expires_at <= clock AND m.locked_by = holder
        ORDER BY m.xid, m.seq, m.lane LIMIT most FOR UPDATE SKIP LOCKED);
END
$body$;

-- Frees these messages, whose locks have expired. What comes back is due at once and keeps locked_by: that marks a suspect, which is
-- claimed alone from now on. A lock set by hand did not count an attempt when it was taken.
CREATE FUNCTION @schema@.queue_message_sweep_free(expired uuid[], clock timestamptz, OUT released bigint, OUT archived bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    -- 'archive' is the strict convention: one lost lock, and the message is dead.
    allowed integer := CASE @schema@.queue_message_setting_value('on_lock_expired')
        WHEN 'archive' THEN 0 ELSE @schema@.queue_message_setting_value('max_attempts')::integer END;
BEGIN
    UPDATE @schema@.queue_message m
    SET lock_expires_at = NULL, lock_token = NULL, locked_by = coalesce(m.locked_by, 0), available_at = clock,
        attempts = m.attempts + (m.locked_by IS NULL)::integer, last_error = format('lock expired at %s', m.lock_expires_at)
    WHERE m.id = ANY (expired) AND m.lock_expires_at <= clock AND m.attempts + (m.locked_by IS NULL)::integer < allowed;
    GET DIAGNOSTICS released = ROW_COUNT;
    archived := @schema@.queue_message_sweep_dead(
        ARRAY(SELECT m.id FROM @schema@.queue_message m WHERE m.id = ANY (expired) AND m.lock_expires_at <= clock), clock);
END
$body$;

-- Archives messages whose lock expired once too often, and sets their ordering keys free, or parks them, by policy.
CREATE FUNCTION @schema@.queue_message_sweep_dead(dead uuid[], clock timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    moved bigint := 0;
BEGIN
    FOR one IN
        SELECT m.id, m.ordering_key, m.attempts + (m.locked_by IS NULL)::integer AS attempts, m.lock_expires_at, r.name
        FROM @schema@.queue_message m LEFT JOIN @schema@.queue_message_relay r ON r.id = m.locked_by
        WHERE m.id = ANY (dead) ORDER BY m.xid, m.seq
    LOOP
        -- One that the archive refuses must not keep the others from being freed.
        BEGIN
            moved := moved + @schema@.queue_message_archive_now(ARRAY[one.id], 'lock_expired', 'lock_expired',
                format('The lock of %s expired at %s, attempt %s.', coalesce(one.name, 'an unknown holder'), one.lock_expires_at, one.attempts),
                coalesce(one.name, 'sweep'));
            IF one.ordering_key IS NOT NULL AND @schema@.queue_message_setting_value('on_dead_key') = 'park' THEN
                INSERT INTO @schema@.queue_message_key_hold (ordering_key, held_by, reason)
                VALUES (one.ordering_key, 'sweep', format('head %s became dead: lock_expired', one.id)) ON CONFLICT DO NOTHING;
            ELSIF one.ordering_key IS NOT NULL THEN
                PERFORM @schema@.queue_message_wake_key(one.ordering_key, clock);
            END IF;
        EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
            RAISE WARNING 'message % cannot be archived: %', one.id, @schema@.queue_message_refusal(SQLSTATE, SQLERRM);
        END;
    END LOOP;
    RETURN moved;
END
$body$;

-- The minute's sweep without a relay: everything where the table is small and in the first minute of each hour; else only below the highest
-- position that a relay has reported, so that a long backlog is not walked each minute, and what silent relays hold apart from it.
CREATE FUNCTION @schema@.queue_message_sweep_minute(now timestamptz DEFAULT NULL, OUT released bigint, OUT archived bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    whole boolean := pg_relation_size(format('%I.queue_message', @schema_literal@::text)::regclass) < 64 * 1024 * 1024
        OR extract(minute FROM clock) = 0;
    top_xid xid8;
    silent record;
    more record;
BEGIN
    IF NOT whole THEN
        SELECT r.top_xid INTO top_xid FROM @schema@.queue_message_relay r ORDER BY r.top_xid DESC LIMIT 1;
    END IF;
    SELECT s.released, s.archived INTO released, archived FROM @schema@.queue_message_sweep(
        now, below_xid => (top_xid::text::bigint + 1)::text::xid8, most => 10000) s;
    FOR silent IN SELECT r.id, r.low_xid, r.low_seq FROM @schema@.queue_message_relay r
        WHERE NOT whole AND r.heartbeat_at <= clock - make_interval(secs => @schema@.queue_message_setting_value('lock_seconds')::double precision)
    LOOP
        SELECT s.released, s.archived INTO more FROM @schema@.queue_message_sweep(
            now, silent.id, silent.low_xid, silent.low_seq, silent.low_xid, silent.low_seq, 10000, true) s;
        released := released + more.released;
        archived := archived + more.archived;
    END LOOP;
END
$body$;

-- A content of a few bytes may be a gigabyte as text (1e131071, ten thousand times), and a claim that meets it fails with everything beside
-- it. Tries the messages that a claim may meet next one by one and archives those that cannot be printed; returns how many.
-- A server that has no memory for it just now says so by another error, and nothing is archived for that.
CREATE FUNCTION @schema@.queue_message_reject_unprintable(most integer DEFAULT 20000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    rejected bigint := 0;
BEGIN
    FOR one IN
        (SELECT m.id, m.content FROM @schema@.queue_message m
         WHERE m.available_at <= now() AND m.lock_expires_at IS NULL ORDER BY m.available_at LIMIT most)
        UNION ALL
        (SELECT m.id, m.content FROM @schema@.queue_message m
         WHERE m.lock_expires_at IS NULL AND m.available_at IS NULL ORDER BY m.xid, m.seq LIMIT most)
    LOOP
        BEGIN
            PERFORM octet_length(one.content::text);
        EXCEPTION WHEN program_limit_exceeded THEN
            rejected := rejected + @schema@.queue_message_archive_now(
                ARRAY[one.id], 'rejected', 'content_unprintable', 'content is larger than a gigabyte as text: write its numbers shorter.', 'relay');
        END;
    END LOOP;
    RETURN rejected;
END
$body$;

-- Mode always: notifies again the 1,000 oldest messages that nobody has claimed; returns how many.
CREATE FUNCTION @schema@.queue_message_renotify() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    notified bigint;
BEGIN
    IF @schema@.queue_message_setting_value('notify') <> 'always' OR pg_notification_queue_usage() > 0.5 THEN
        RETURN 0;
    END IF;
    PERFORM pg_notify('queue_message_notify', @schema@.queue_message_payload(oldest.id, 'queue_message')) FROM (
        SELECT m.id FROM @schema@.queue_message m
        WHERE m.lock_expires_at IS NULL AND (m.available_at IS NULL OR m.available_at <= now())
        ORDER BY m.xid, m.seq LIMIT 1000) AS oldest;
    GET DIAGNOSTICS notified = ROW_COUNT;
    RETURN notified;
END
$body$;
