-- What a role may hand to a function or write into a column is as short as a person reads it, and a time is one that a calendar has: a text of a
-- megabyte made whoever reads it take as much, and what was infinite broke every view that subtracts it (PostgreSQL 15 and 16).
ALTER TABLE @schema@.queue_message_export_position
    ADD CONSTRAINT queue_message_export_position_lake_check CHECK (@schema@.queue_message_check_size('lake', octet_length(lake), 4000)) NOT VALID,
    ADD CONSTRAINT queue_message_export_position_seen_at_check CHECK (@schema@.queue_message_check_time('seen_at', seen_at)) NOT VALID;
ALTER TABLE @schema@.queue_message_export
    ADD CONSTRAINT queue_message_export_partition_check CHECK (@schema@.queue_message_check_size('partition', octet_length(partition), 255)) NOT VALID,
    ADD CONSTRAINT queue_message_export_damage_check CHECK (@schema@.queue_message_check_size('damage', octet_length(damage), 4000)) NOT VALID,
    ADD CONSTRAINT queue_message_export_difference_check CHECK (@schema@.queue_message_check_size('difference', octet_length(difference), 4000)) NOT VALID,
    ADD CONSTRAINT queue_message_export_lake_check CHECK (@schema@.queue_message_check_size('lake', octet_length(lake), 4000)) NOT VALID,
    ADD CONSTRAINT queue_message_export_compared_at_check CHECK (@schema@.queue_message_check_time('compared_at', compared_at)) NOT VALID,
    ADD CONSTRAINT queue_message_export_verified_at_check CHECK (@schema@.queue_message_check_time('verified_at', verified_at)) NOT VALID;
ALTER TABLE @schema@.queue_message_lake_day
    ADD CONSTRAINT queue_message_lake_day_name_check CHECK (@schema@.queue_message_check_size('name', octet_length(name), 255)) NOT VALID,
    ADD CONSTRAINT queue_message_lake_day_day_check CHECK (day BETWEEN '0001-01-01' AND '9999-12-31') NOT VALID;
ALTER TABLE @schema@.queue_message_lake_job
    ADD CONSTRAINT queue_message_lake_job_job_check CHECK (@schema@.queue_message_check_size('job', octet_length(job), 255)) NOT VALID,
    ADD CONSTRAINT queue_message_lake_job_at_check CHECK (@schema@.queue_message_check_time('at', at)) NOT VALID;
ALTER TABLE @schema@.queue_message_receipt
    ADD CONSTRAINT queue_message_receipt_consumer_check CHECK (@schema@.queue_message_check_size('consumer', octet_length(consumer), 4000)) NOT VALID,
    ADD CONSTRAINT queue_message_receipt_queue_check CHECK (@schema@.queue_message_check_size('queue', octet_length(queue), 4000)) NOT VALID,
    ADD CONSTRAINT queue_message_receipt_received_at_check CHECK (@schema@.queue_message_check_time('received_at', received_at)) NOT VALID;
ALTER TABLE @schema@.queue_message_stats_day
    ADD CONSTRAINT queue_message_stats_day_exchange_check CHECK (@schema@.queue_message_check_size('exchange', octet_length(exchange), 255)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_day_routing_key_check
        CHECK (@schema@.queue_message_check_size('routing_key', octet_length(routing_key), 255)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_day_start_check CHECK (@schema@.queue_message_check_time('start', start)) NOT VALID;
ALTER TABLE @schema@.queue_message_stats_hour
    ADD CONSTRAINT queue_message_stats_hour_exchange_check CHECK (@schema@.queue_message_check_size('exchange', octet_length(exchange), 255)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_hour_routing_key_check
        CHECK (@schema@.queue_message_check_size('routing_key', octet_length(routing_key), 255)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_hour_start_check CHECK (@schema@.queue_message_check_time('start', start)) NOT VALID;
ALTER TABLE @schema@.queue_message_stats_window
    ADD CONSTRAINT queue_message_stats_window_exchange_check CHECK (@schema@.queue_message_check_size('exchange', octet_length(exchange), 255)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_window_routing_key_check
        CHECK (@schema@.queue_message_check_size('routing_key', octet_length(routing_key), 255)) NOT VALID,
    ADD CONSTRAINT queue_message_stats_window_start_check CHECK (@schema@.queue_message_check_time('start', start)) NOT VALID;

-- As before, but of what is damaged as much is kept as a person reads.
CREATE OR REPLACE FUNCTION @schema@.queue_message_export_seen(lake text, epoch bigint, version bigint, began timestamptz, partitions text[], rows bigint[],
    damage text[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    damage := ARRAY(SELECT @schema@.queue_message_cut(d.words, 4000) FROM unnest(damage) WITH ORDINALITY AS d (words, place) ORDER BY d.place);
    -- Locks the row, so that looks and commits come one after the other. A look of the future is none: the clock was set back since.
    UPDATE @schema@.queue_message_export_position p SET seen_at = began, looked_at = began, version = version, problem = NULL
    WHERE p.lake = lake AND p.epoch = epoch AND (p.looked_at <= began OR p.looked_at > clock_timestamp()) IS NOT FALSE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO @schema@.queue_message_export AS e (partition, rows, compared_at)
    SELECT f.partition, 0, NULL FROM unnest(partitions) AS f (partition)
    ON CONFLICT ON CONSTRAINT queue_message_export_pkey DO NOTHING;
    UPDATE @schema@.queue_message_export e
    SET lake_rows = greatest(e.lake_rows, f.rows), damage = f.damage
    FROM unnest(partitions, rows, damage) AS f (partition, rows, damage)
    WHERE e.partition = f.partition AND (e.damage IS DISTINCT FROM f.damage OR e.lake_rows IS DISTINCT FROM greatest(e.lake_rows, f.rows));
    RETURN true;
END
$body$;

-- As before, in the years that a calendar has.
CREATE OR REPLACE FUNCTION @schema@.queue_message_stats_compare(since timestamptz, until timestamptz)
RETURNS TABLE (figure text, value double precision, before double precision)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH asked AS MATERIALIZED (
        SELECT @schema@.queue_message_check_time('since', since) AND @schema@.queue_message_check_time('until', until) AS fine
    ), counted AS (
        SELECT h.start >= since AS is_now, sum(h.published) AS published, sum(h.discarded) AS discarded,
            sum(h.rejected + h.failed + h.lock_expired) AS dead, sum(h.attempts) AS attempts, sum(h.within_target) AS within_target,
            @schema@.queue_message_buckets_sum(h.wait) AS wait, @schema@.queue_message_buckets_sum(h.publish) AS publish,
            @schema@.queue_message_buckets_sum(h.confirm) AS confirm
        FROM @schema@.queue_message_stats_hour h
        WHERE (SELECT asked.fine FROM asked) AND h.start >= since - make_interval(secs => extract(epoch FROM until - since)::double precision) AND h.start < until
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

CREATE OR REPLACE FUNCTION @schema@.queue_message_clock_change(day date, time_zone text,
    OUT before interval, OUT later interval, OUT changed_at timestamptz)
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $body$
#variable_conflict use_variable
DECLARE
    low timestamp;
    high timestamp;
    middle timestamp;
BEGIN
    PERFORM @schema@.queue_message_check_time('day', day::timestamptz);
    low := day - interval '1 day';
    high := day + interval '2 days';
    before := (low AT TIME ZONE 'UTC' AT TIME ZONE time_zone) - low;
    later := (high AT TIME ZONE 'UTC' AT TIME ZONE time_zone) - high;
    IF before = later THEN
        RETURN;
    END IF;
    WHILE high - low > interval '1 second' LOOP
        middle := date_trunc('second', low + (high - low) / 2);
        IF (middle AT TIME ZONE 'UTC' AT TIME ZONE time_zone) - middle = before THEN
            low := middle;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    changed_at := high AT TIME ZONE 'UTC';
END
$body$;

CREATE OR REPLACE FUNCTION @schema@.queue_message_next_tick(spec text, time_zone text, after timestamptz, anchor timestamptz DEFAULT 'epoch')
RETURNS timestamptz
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $body$
#variable_conflict use_variable
DECLARE
    every bigint := @schema@.queue_message_every(spec);
    cron record;
    day date;
    last date;
    due_date boolean;
    due_weekday boolean;
    tick timestamptz;
    found date;
BEGIN
    PERFORM @schema@.queue_message_check_time('after', after), @schema@.queue_message_check_time('anchor', anchor);
    day := (after AT TIME ZONE time_zone)::date - 1;
    last := least(day + 15000, '9999-12-29'::date);
    IF every IS NOT NULL THEN
        anchor := date_trunc('second', anchor);
        RETURN anchor + make_interval(secs => every * greatest(floor(extract(epoch FROM after - anchor) / every) + 1, 1));
    END IF;
    cron := @schema@.queue_message_cron_times(spec);
    -- The day after the one that is found is looked at too: where clocks are set back past midnight, it may come first.
    WHILE day <= last AND (found IS NULL OR day <= found + 1) LOOP
        IF extract(month FROM day)::int <> ALL (cron.months) THEN
            day := date_trunc('month', day) + interval '1 month';
            CONTINUE;
        END IF;
        due_date := extract(day FROM day)::int = ANY (cron.days);
        due_weekday := extract(dow FROM day)::int = ANY (cron.weekdays);
        IF due_date AND due_weekday OR cron.either AND (due_date OR due_weekday) THEN
            tick := least(tick, @schema@.queue_message_day_tick(day, cron.hours, cron.minutes, cron.elapsed, time_zone, after));
            found := coalesce(found, CASE WHEN tick IS NOT NULL THEN day END);
        END IF;
        day := day + 1;
    END LOOP;
    RETURN tick;
END
$body$;

-- As before, and what is infinite is shown as that.
CREATE OR REPLACE FUNCTION @schema@.queue_message_shown(moment timestamptz, time_zone text) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED AS $body$
#variable_conflict use_variable
DECLARE
    ahead interval;
BEGIN
    IF NOT isfinite(moment) THEN
        RETURN moment::text;
    END IF;
    ahead := (moment AT TIME ZONE time_zone) - (moment AT TIME ZONE 'UTC');
    RETURN to_char(moment AT TIME ZONE time_zone, 'YYYY-MM-DD HH24:MI:SS') || CASE WHEN ahead < '0' THEN '-' ELSE '+' END
        || to_char(greatest(ahead, -ahead), 'HH24:MI');
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || '+00:00';
END
$body$;

-- As before, but what is longer than any name is cut.
CREATE OR REPLACE FUNCTION @schema@.queue_message_quoted(name text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT CASE WHEN name !~ '[^ -~[:alnum:]]' THEN '''' || replace(left(name, 255), '''', '''"''"''') || ''''
        ELSE '$''' || string_agg(CASE WHEN letter IN ('''', '"', E'\\') THEN E'\\' || letter WHEN letter ~ '[ -~[:alnum:]]' THEN letter
            ELSE regexp_replace(encode(convert_to(letter, 'UTF8'), 'hex'), '(..)', E'\\\\x\\1', 'g') END, '' ORDER BY place) || '''' END
    FROM regexp_split_to_table(left(name, 255), '') WITH ORDINALITY AS letters (letter, place)
$body$;

-- As before, but repeats no more of a wrong value than a person reads.
CREATE OR REPLACE FUNCTION @schema@.queue_message_setting_error(setting text, value text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $body$
#variable_conflict use_variable
DECLARE
    rule record;
    one text;
    fine boolean;
BEGIN
    SELECT * INTO rule FROM @schema@.queue_message_setting_rule() r WHERE r.name = setting;
    IF rule.name IS NULL THEN
        RETURN format('There is no setting %s; there are %s.', @schema@.queue_message_printable(setting),
                      (SELECT string_agg(r.name, ', ' ORDER BY r.name) FROM @schema@.queue_message_setting_rule() r));
    ELSIF rule.kind IN ('integer', 'number') THEN
        fine := value ~ CASE rule.kind WHEN 'integer' THEN '^[0-9]{1,9}$' ELSE '^[0-9]{1,9}([.][0-9]{1,6})?$' END;
        IF NOT fine OR value::numeric NOT BETWEEN rule.low AND rule.high THEN
            RETURN format('Setting "%s" is %s; it must be %s from %s to %s.', setting, @schema@.queue_message_printable(value),
                          CASE rule.kind WHEN 'integer' THEN 'a whole number' ELSE 'a number' END, rule.low, rule.high);
        END IF;
    ELSIF rule.kind = 'word' AND value <> ALL (rule.words) THEN
        RETURN format('Setting "%s" is %s; it must be one of %s.', setting, @schema@.queue_message_printable(value), array_to_string(rule.words, ', '));
    ELSIF rule.kind = 'policy' THEN
        one := format('([^,=]*=)?(%s)', array_to_string(rule.words, '|'));
        IF value !~ format('^%s(,%s)*$', one, one) THEN
            RETURN format('Setting "%s" is %s; it must be one of %s, or a list such as retry,audit=accept.',
                          setting, @schema@.queue_message_printable(value), array_to_string(rule.words, ', '));
        ELSIF EXISTS (SELECT FROM unnest(string_to_array(value, ',')) AS part GROUP BY CASE WHEN part ~ '=' THEN split_part(part, '=', 1) END HAVING count(DISTINCT part) > 1) THEN
            RETURN format('Setting "%s" is %s; it says two things of the same exchange, or has two defaults.', setting, @schema@.queue_message_printable(value));
        END IF;
    END IF;
    RETURN NULL;
END
$body$;

-- As before, and handlers of any length are known by their digest.
CREATE OR REPLACE FUNCTION @schema@.queue_message_take_watch(handlers text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    drawn bigint := ('x' || left(md5(gen_random_uuid()::text), 16))::bit(64)::bigint;
BEGIN
    handlers := @schema@.queue_message_cut(handlers, 1000, hashed => true);
    INSERT INTO @schema@.queue_message_watch (handlers) VALUES (handlers) ON CONFLICT DO NOTHING;
    SELECT w.pid, @schema@.queue_message_watched(w.pid, w.login, w.key) AS alive INTO one
    FROM @schema@.queue_message_watch w WHERE w.handlers = handlers FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR one.alive THEN
        RETURN coalesce(one.pid = pg_backend_pid(), false);
    END IF;
    PERFORM pg_advisory_lock(drawn);
    UPDATE @schema@.queue_message_watch w SET (pid, login, key) = (
        SELECT a.pid, a.usesysid, drawn FROM pg_stat_activity a WHERE a.pid = pg_backend_pid())
    WHERE w.handlers = handlers;
    RETURN true;
END
$body$;

-- As before, but a version leaves room for many more.
CREATE OR REPLACE FUNCTION @schema@.queue_message_contract_add(
    exchange text, routing_key text, schema jsonb, version integer DEFAULT NULL, mode text DEFAULT 'warn', by text DEFAULT session_user,
    OUT added integer, OUT made boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    newest record;
    highest integer;
BEGIN
    -- Two at once would take the same number. Whoever reads the contracts does not wait.
    LOCK TABLE @schema@.queue_message_contract IN SHARE ROW EXCLUSIVE MODE;
    SELECT c.version, c.schema INTO newest FROM @schema@.queue_message_contract c
    WHERE c.exchange = exchange AND c.routing_key = routing_key AND (version IS NULL OR c.version = version)
    ORDER BY c.version DESC LIMIT 1;
    IF newest.schema = schema THEN
        added := newest.version;
        made := false;
        RETURN;
    ELSIF newest.version = version THEN
        RAISE EXCEPTION 'Version % of this contract is there with another schema, and final: add another version.', version
            USING ERRCODE = 'restrict_violation', TABLE = 'queue_message_contract';
    END IF;
    SELECT coalesce(max(c.version), 0) INTO highest FROM @schema@.queue_message_contract c WHERE c.exchange = exchange AND c.routing_key = routing_key;
    added := coalesce(version, highest + 1);
    IF added NOT BETWEEN 1 AND least(highest + 1000, 1000000) THEN
        RAISE EXCEPTION 'A version of this contract must be from 1 to %, at most 1000 more than the newest one; % is not.', least(highest + 1000, 1000000), added
            USING ERRCODE = 'check_violation', TABLE = 'queue_message_contract', COLUMN = 'version';
    END IF;
    made := true;
    INSERT INTO @schema@.queue_message_contract (exchange, routing_key, version, mode, schema, added_by)
    VALUES (exchange, routing_key, added, mode, schema, @schema@.queue_message_signed(by));
END
$body$;

-- As before, but a prefix that is longer than any role's name costs nothing.
CREATE OR REPLACE FUNCTION @schema@.queue_message_roles_elsewhere(prefix text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH held AS (
        SELECT s.dbid, s.classid, s.objid
        FROM @schema@.queue_message_privileges() p JOIN pg_roles r ON r.rolname = left(prefix, 64) || '_' || substr(p.role, 15)
            JOIN pg_shdepend s ON s.refclassid = 'pg_authid'::regclass AND s.refobjid = r.oid AND s.deptype = 'a'
    ), place AS (
        SELECT 'database ' || quote_ident(d.datname) AS name
        FROM held h JOIN pg_database d ON d.oid = h.dbid WHERE d.datname <> current_database()
        UNION
        SELECT 'schema ' || quote_ident(n.nspname)
        FROM held h JOIN pg_database d ON d.oid = h.dbid AND d.datname = current_database()
            JOIN pg_class c ON h.classid = 'pg_class'::regclass AND c.oid = h.objid AND c.relname LIKE E'queue\\_message%'
            JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname <> @schema_literal@
    ), numbered AS (
        SELECT name, row_number() OVER (ORDER BY name) AS place, count(*) OVER () AS places FROM place
    )
    SELECT regexp_replace(string_agg(name, ', ' ORDER BY name) || CASE WHEN max(places) > 3 THEN format(' and %s more', max(places) - 3) ELSE '' END COLLATE "C",
                          '[^ -~]', '?', 'g')
    FROM numbered WHERE place <= 3
$body$;

CREATE OR REPLACE FUNCTION @schema@.queue_message_prefix_roles(prefix text)
    RETURNS TABLE (role text, left_over boolean, members text, problem text, own boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH found AS (
        SELECT DISTINCT r.*, coalesce(shobj_description(r.oid, 'pg_authid') LIKE 'outbox-relay: %', false) AS marked,
            prefix = ANY (@schema@.queue_message_former_prefixes())
                AND shobj_description(r.oid, 'pg_authid') IS NOT DISTINCT FROM @schema@.queue_message_role_mark(p.role) AS own,
            (SELECT present.oid FROM pg_roles present WHERE present.rolname = @schema@.queue_message_role(p.role)) AS present
        FROM @schema@.queue_message_privileges() p JOIN pg_roles r ON r.rolname = left(prefix, 64) || '_' || substr(p.role, 15)
        WHERE r.rolname NOT IN (SELECT g.former FROM @schema@.queue_message_former_grants() g WHERE g.place <> 'SCHEMA')
    ), membership AS (
        SELECT m.roleid, m.member FROM pg_auth_members m WHERE coalesce((to_jsonb(m) ->> 'inherit_option')::boolean OR (to_jsonb(m) ->> 'set_option')::boolean, true)
    ), counted AS (
        SELECT f.*, (SELECT string_agg(DISTINCT quote_ident(who.rolname), ', ') FROM membership m JOIN pg_roles who ON who.oid = m.member
                     WHERE m.roleid = f.oid AND who.rolname <> current_user AND who.oid NOT IN (SELECT o.oid FROM found o)
                         AND NOT (f.own AND EXISTS (SELECT FROM membership today WHERE today.roleid = f.present AND today.member = who.oid))) AS members
        FROM found f
    )
    SELECT c.rolname, c.marked AND NOT c.rolcanlogin, c.members, CASE
        WHEN c.rolcanlogin THEN 'can log in'
        WHEN c.rolsuper OR c.rolcreaterole OR c.rolcreatedb OR c.rolreplication OR c.rolbypassrls THEN 'has attributes'
        WHEN EXISTS (SELECT FROM membership m WHERE m.member = c.oid AND m.roleid NOT IN (SELECT o.oid FROM found o)) THEN 'is a member of other roles'
        WHEN EXISTS (SELECT FROM pg_shdepend s WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = c.oid AND (s.deptype = 'o'
            OR s.deptype = 'a' AND s.dbid <> 0 AND s.classid <> 'pg_namespace'::regclass)) THEN 'has rights of its own'
        WHEN c.own AND c.members IS NOT NULL THEN 'has members that are admitted no more: ' || c.members
        WHEN c.marked AND c.members IS NOT NULL THEN 'has members of an outbox that is gone: ' || c.members END, c.own
    FROM counted c ORDER BY c.rolname
$body$;

-- When a schedule's message was last put off because somebody held what it needs: those that nobody holds up go first.
ALTER TABLE @schema@.queue_message_schedule ADD COLUMN put_off_at timestamptz NOT NULL DEFAULT 'epoch';

-- As before, but a schedule that waits for a lock is put off and undoes no other, and a call ends after two seconds: what it has done holds, and
-- the next call goes on.
CREATE OR REPLACE FUNCTION @schema@.queue_message_run_schedules(now timestamptz DEFAULT NULL, OUT inserted int, OUT next_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    one @schema@.queue_message_schedule;
    until timestamptz := clock_timestamp() + interval '2 s';
BEGIN
    inserted := 0;
    -- Those that owe each tick last: there may be many, and nobody waits behind them.
    FOR one IN SELECT s.* FROM @schema@.queue_message_schedule s WHERE s.next_at <= clock
               ORDER BY s.missed = 'all', s.put_off_at, s.next_at, s.name FOR UPDATE SKIP LOCKED LOOP
        CONTINUE WHEN one.missed = 'all' AND inserted >= 1000;
        BEGIN
            inserted := inserted + @schema@.queue_message_schedule_due(one, clock, greatest(1000 - inserted, 1));
        EXCEPTION WHEN lock_not_available THEN
            UPDATE @schema@.queue_message_schedule s SET put_off_at = clock WHERE s.name = one.name;
        WHEN OTHERS THEN
            IF @schema@.queue_message_meets_all(SQLSTATE, '', '') THEN
                RAISE;
            END IF;
            PERFORM @schema@.queue_message_schedule_failed(one, clock, @schema@.queue_message_why(SQLSTATE, SQLERRM));
        END;
        EXIT WHEN clock_timestamp() > until;
    END LOOP;
    SELECT min(s.next_at) INTO next_at FROM @schema@.queue_message_schedule s;
END
$body$;
