-- Schedules: messages that come at times. The rules of the times are those of Debian's cron, and docs/schedules.md is the page for people.
-- Whoever calls queue_message_run_schedules() inserts what is due, living relays or pg_cron, and each tick is inserted once.

-- One field of a cron line as the sorted numbers that it names; NULL where it is none. Names stand for low, low + 1 and so on.
CREATE FUNCTION @schema@.queue_message_cron_field(field text, low int, high int, names text[] DEFAULT '{}') RETURNS int[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $body$
#variable_conflict use_variable
DECLARE
    part text;
    found text[];
    first int;
    last int;
    wanted int[] := '{}';
BEGIN
    FOREACH part IN ARRAY string_to_array(field, ',') LOOP
        found := regexp_match(part, '^(?:([*])|([a-z]{3}|[0-9]{1,2})(?:-([a-z]{3}|[0-9]{1,2}))?)(?:/([0-9]{1,2}))?$');
        first := CASE WHEN found[1] IS NOT NULL THEN low WHEN found[2] ~ '[0-9]' THEN found[2]::int
            ELSE array_position(names, found[2]) - 1 + low END;
        last := CASE WHEN found[1] IS NOT NULL THEN high WHEN found[3] IS NULL THEN first WHEN found[3] ~ '[0-9]' THEN found[3]::int
            ELSE array_position(names, found[3]) - 1 + low END;
        IF (first >= low AND last BETWEEN first AND high AND coalesce(found[4]::int, 1) BETWEEN 1 AND high) IS NOT TRUE
            -- A step needs something to step through.
            OR found[4] IS NOT NULL AND coalesce(found[1], found[3]) IS NULL
        THEN
            RETURN NULL;
        END IF;
        wanted := wanted || ARRAY(SELECT generate_series(first, last, coalesce(found[4]::int, 1)));
    END LOOP;
    RETURN ARRAY(SELECT DISTINCT unnest(wanted) ORDER BY 1);
END
$body$;

-- The five fields of a cron line, or of what a name such as @daily stands for; NULL where there are not five.
CREATE FUNCTION @schema@.queue_message_cron_line(spec text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT CASE WHEN cardinality(line.fields) = 5 THEN line.fields END FROM (
        SELECT regexp_split_to_array(CASE trimmed.spec
            WHEN '@hourly' THEN '0 * * * *' WHEN '@daily' THEN '0 0 * * *' WHEN '@midnight' THEN '0 0 * * *'
            WHEN '@weekly' THEN '0 0 * * 0' WHEN '@monthly' THEN '0 0 1 * *'
            WHEN '@yearly' THEN '0 0 1 1 *' WHEN '@annually' THEN '0 0 1 1 *'
            ELSE trimmed.spec END, E'[ \t]+') AS fields
        FROM (SELECT btrim(lower(queue_message_cron_line.spec), E' \t') AS spec) AS trimmed) AS line
$body$;

-- A cron line read. either: day of month and day of week are both given, and a day that is one of them counts. elapsed: a schedule of
-- minutes, which goes by elapsed time where clocks are set. As Debian's cron has it, both are said by the first letter of a field.
CREATE FUNCTION @schema@.queue_message_cron_times(spec text,
    OUT minutes int[], OUT hours int[], OUT days int[], OUT months int[], OUT weekdays int[], OUT either boolean, OUT elapsed boolean)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $body$
#variable_conflict use_variable
DECLARE
    line text[] := @schema@.queue_message_cron_line(spec);
BEGIN
    minutes := @schema@.queue_message_cron_field(line[1], 0, 59);
    hours := @schema@.queue_message_cron_field(line[2], 0, 23);
    days := @schema@.queue_message_cron_field(line[3], 1, 31);
    months := @schema@.queue_message_cron_field(line[4], 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}');
    weekdays := @schema@.queue_message_cron_field(line[5], 0, 7, '{sun,mon,tue,wed,thu,fri,sat}');
    IF 7 = ANY (weekdays) THEN
        weekdays := weekdays || 0;
    END IF;
    either := line[3] !~ '^[*]' AND line[5] !~ '^[*]';
    elapsed := line[1] ~ '^[*]' OR line[2] ~ '^[*]';
END
$body$;

-- Seconds of a spec such as EVERY 90 seconds or every 1h 30m; NULL where it is none.
CREATE FUNCTION @schema@.queue_message_every(spec text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT sum(part[1]::bigint
        * CASE left(part[2], 1) WHEN 's' THEN 1 WHEN 'm' THEN 60 WHEN 'h' THEN 3600 WHEN 'd' THEN 86400 ELSE 604800 END)::bigint
    FROM regexp_matches(lower(spec), '([0-9]+) *([a-z]+)', 'g') AS part
    WHERE lower(spec) ~ '^ *every( +[0-9]{1,9} *(s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?|w|weeks?))+ *$'
$body$;

-- The sentence that says why a spec is none; NULL where it is one.
CREATE FUNCTION @schema@.queue_message_spec_error(spec text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $body$
#variable_conflict use_variable
DECLARE
    line text[] := @schema@.queue_message_cron_line(spec);
    cron record;
BEGIN
    IF spec IS NULL OR length(spec) > 1000 THEN
        RETURN 'A schedule needs a spec of at most 1000 characters.';
    ELSIF spec ~* E'^\\s*every\\M' THEN
        RETURN CASE WHEN @schema@.queue_message_every(spec) BETWEEN 1 AND 316224000 THEN NULL ELSE
            format('The schedule %s must be EVERY and a length from 1 second to 3660 days, in weeks, days, hours, minutes and seconds, '
                'such as EVERY 15 minutes; for months and years write a cron line.', @schema@.queue_message_quoted(spec)) END;
    ELSIF line IS NULL THEN
        RETURN format('The schedule %s must be the five fields of a cron line (minute, hour, day of month, month, day of week) such as '
            '''0 3 * * *'', a name such as @daily, or EVERY 15 minutes.', @schema@.queue_message_quoted(spec));
    END IF;
    cron := @schema@.queue_message_cron_times(spec);
    RETURN CASE WHEN cron.minutes IS NULL THEN @schema@.queue_message_field_error('minute', line[1], 'numbers from 0 to 59')
        WHEN cron.hours IS NULL THEN @schema@.queue_message_field_error('hour', line[2], 'numbers from 0 to 23')
        WHEN cron.days IS NULL THEN @schema@.queue_message_field_error('day of month', line[3], 'numbers from 1 to 31')
        WHEN cron.months IS NULL THEN @schema@.queue_message_field_error('month', line[4], 'numbers from 1 to 12 or names from jan to dec')
        WHEN cron.weekdays IS NULL THEN
            @schema@.queue_message_field_error('day of week', line[5], 'numbers from 0 to 7 or names from sun to sat')
    END;
END
$body$;

CREATE FUNCTION @schema@.queue_message_field_error(field text, given text, wanted text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT format('The %s of a schedule is %s; it must be *, or %s, with ranges, lists and steps such as 1-5, 1,3 or */2.',
        field, @schema@.queue_message_quoted(given), wanted)
$body$;

-- Where the clocks of a zone are set within a day of a date: how far ahead of UTC it is before and after, and the moment; null for no
-- moment.
CREATE FUNCTION @schema@.queue_message_clock_change(day date, time_zone text,
    OUT before interval, OUT later interval, OUT changed_at timestamptz)
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $body$
#variable_conflict use_variable
DECLARE
    low timestamp := day - interval '1 day';
    high timestamp := day + interval '2 days';
    middle timestamp;
BEGIN
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

-- The first tick after a time that belongs to one day of a zone; NULL for none.
CREATE FUNCTION @schema@.queue_message_day_tick(day date, hours int[], minutes int[], elapsed boolean, time_zone text, after timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $body$
#variable_conflict use_variable
DECLARE
    change record := @schema@.queue_message_clock_change(day, time_zone);
    reached interval;
    hour int;
    minute int;
BEGIN
    IF change.changed_at IS NULL THEN
        reached := (after AT TIME ZONE 'UTC') + change.before - day::timestamp;
        FOREACH hour IN ARRAY hours LOOP
            CONTINUE WHEN make_interval(hours => hour + 1) <= reached;
            FOREACH minute IN ARRAY minutes LOOP
                IF make_interval(hours => hour, mins => minute) > reached THEN
                    RETURN (day::timestamp + make_interval(hours => hour, mins => minute) - change.before) AT TIME ZONE 'UTC';
                END IF;
            END LOOP;
        END LOOP;
        RETURN NULL;
    END IF;
    -- Each time of the day under the clock before the change and under the one after it, where that shows it. What neither shows comes with
    -- the change; of what both show the second counts only for a schedule of minutes, and for that nothing comes with the change.
    RETURN (SELECT min(tick.at) FROM unnest(hours) AS h, unnest(minutes) AS m,
        LATERAL (SELECT day::timestamp + make_interval(hours => h, mins => m) AS shown) AS place,
        LATERAL (SELECT (shown - change.before) AT TIME ZONE 'UTC' AS early, (shown - change.later) AT TIME ZONE 'UTC' AS late) AS read,
        LATERAL (SELECT early WHERE early < change.changed_at
            UNION ALL SELECT late WHERE late >= change.changed_at AND (elapsed OR early >= change.changed_at)
            UNION ALL SELECT change.changed_at WHERE early >= change.changed_at AND late < change.changed_at AND NOT elapsed) AS tick (at)
        WHERE tick.at > after);
END
$body$;

-- The first tick of a schedule after a time; NULL for none within 41 years, in which every date comes on every day of the week. Walks days,
-- not minutes. EVERY counts from the anchor, so it does not drift.
CREATE FUNCTION @schema@.queue_message_next_tick(spec text, time_zone text, after timestamptz, anchor timestamptz DEFAULT 'epoch')
RETURNS timestamptz
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $body$
#variable_conflict use_variable
DECLARE
    every bigint := @schema@.queue_message_every(spec);
    cron record;
    day date := (after AT TIME ZONE time_zone)::date - 1;
    last date := least(day + 15000, '9999-12-29'::date);
    due_date boolean;
    due_weekday boolean;
    tick timestamptz;
    found date;
BEGIN
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

-- The last tick that is not after a time, where one is known. Halves the time between them, as there may be a year of minutes.
CREATE FUNCTION @schema@.queue_message_last_tick(spec text, time_zone text, known timestamptz, until timestamptz, anchor timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE PARALLEL SAFE SET timezone = 'UTC' AS $body$
#variable_conflict use_variable
DECLARE
    high timestamptz := until;
    middle timestamptz;
    following timestamptz;
    tick timestamptz;
BEGIN
    LOOP
        following := @schema@.queue_message_next_tick(spec, time_zone, known, anchor);
        IF following IS NULL OR following > until THEN
            RETURN known;
        END IF;
        middle := following + (high - following) / 2;
        tick := @schema@.queue_message_next_tick(spec, time_zone, middle, anchor);
        IF tick <= until THEN
            known := tick;
        ELSE
            known := following;
            high := middle;
        END IF;
    END LOOP;
END
$body$;

-- A time as a clock of the zone shows it, with its distance from UTC; in UTC where PostgreSQL does not know the zone any more.
CREATE FUNCTION @schema@.queue_message_shown(moment timestamptz, time_zone text) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED AS $body$
#variable_conflict use_variable
DECLARE
    ahead interval;
BEGIN
    ahead := (moment AT TIME ZONE time_zone) - (moment AT TIME ZONE 'UTC');
    RETURN to_char(moment AT TIME ZONE time_zone, 'YYYY-MM-DD HH24:MI:SS') || CASE WHEN ahead < '0' THEN '-' ELSE '+' END
        || to_char(greatest(ahead, -ahead), 'HH24:MI');
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || '+00:00';
END
$body$;

-- Schedules, changed through the functions below or, by the owner, as a table; a change is judged and its next tick found by a trigger.
CREATE TABLE @schema@.queue_message_schedule (
    name          text        PRIMARY KEY,
    spec          text        NOT NULL,
    time_zone     text        NOT NULL DEFAULT 'UTC',
    exchange      text        NOT NULL,
    routing_key   text        NOT NULL DEFAULT '',
    content       jsonb       NOT NULL DEFAULT '{}',
    options       jsonb       NOT NULL DEFAULT '{}',
    ordering_key  text,
    -- Counted from the insert, so that what is sent late is not dead on arrival.
    expires_after interval,
    -- Of ticks that nobody was there for: skip sends none, once the last, all each.
    missed        text        NOT NULL DEFAULT 'once',
    paused        boolean     NOT NULL DEFAULT false,
    -- Null while it is paused.
    next_at       timestamptz,
    last_at       timestamptz,
    last_id       uuid,
    last_error    text,
    created_at    timestamptz NOT NULL DEFAULT now(),
    created_by    text        NOT NULL DEFAULT session_user,
    changed_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX queue_message_schedule_next_at_idx ON @schema@.queue_message_schedule (next_at);
COMMENT ON TABLE @schema@.queue_message_schedule IS 'Messages that come at times, and when each comes next.';

-- Schedules that fail, and why: the INSERT was refused, or the message that it sent last is dead and nobody has acknowledged that. One that is
-- paused is in somebody's hands.
CREATE VIEW @schema@.queue_message_schedule_failing AS
    SELECT s.name, s.exchange, s.routing_key, s.last_at, coalesce('it sent nothing: ' || s.last_error,
        format('its last message is dead, %s%s%s', d.result, ' (' || d.error_code || ')', ': ' || d.error_detail)) AS why
    FROM @schema@.queue_message_schedule s LEFT JOIN LATERAL (
        SELECT d.result, d.error_code, d.error_detail FROM @schema@.queue_message_dead d
        WHERE d.id = s.last_id AND NOT EXISTS (SELECT FROM @schema@.queue_message_dead_ack a WHERE (a.xid, a.seq) = (d.xid, d.seq))
        LIMIT 1) d ON true
    WHERE s.next_at IS NOT NULL AND (s.last_error IS NOT NULL OR d.result IS NOT NULL);

-- Inserts a schedule's message. Headers tell the schedule, and the tick that it is for unless somebody asked for it; headers of the same
-- names in the options stay.
CREATE FUNCTION @schema@.queue_message_schedule_send(one @schema@.queue_message_schedule, tick timestamptz, clock timestamptz) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $body$
#variable_conflict use_variable
DECLARE
    told jsonb := jsonb_strip_nulls(jsonb_build_object('x-relay-schedule', one.name,
        'x-relay-tick', to_char(tick, 'YYYY-MM-DD"T"HH24:MI:SS"Z"')));
    made uuid;
BEGIN
    INSERT INTO @schema@.queue_message (exchange, routing_key, content, options, ordering_key, expires_at)
    VALUES (one.exchange, one.routing_key, one.content,
        CASE WHEN jsonb_typeof(one.options) = 'object' AND jsonb_typeof(coalesce(nullif(one.options -> 'headers', 'null'), '{}')) = 'object'
            THEN one.options || jsonb_build_object('headers', told || coalesce(nullif(one.options -> 'headers', 'null'), '{}'))
            ELSE one.options END,
        one.ordering_key, clock + one.expires_after)
    RETURNING id INTO made;
    RETURN made;
END
$body$;

-- Why a time zone is none for a schedule; NULL where it is one. AT TIME ZONE takes more than the names of zones, and takes some of those
-- names, such as CET, for a distance from UTC without daylight saving. The view reads some hundred files.
CREATE FUNCTION @schema@.queue_message_zone_error(time_zone text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT CASE
        WHEN NOT EXISTS (SELECT FROM pg_timezone_names z WHERE z.name = queue_message_zone_error.time_zone) THEN
            format('PostgreSQL knows no time zone %s; pg_timezone_names lists those that it knows, such as Europe/Berlin.',
                @schema@.queue_message_quoted(queue_message_zone_error.time_zone))
        WHEN queue_message_zone_error.time_zone NOT IN ('UTC', 'GMT')
            AND EXISTS (SELECT FROM pg_timezone_abbrevs a WHERE a.abbrev = upper(queue_message_zone_error.time_zone)) THEN
            format('PostgreSQL takes %s for a fixed distance from UTC; take the zone of a place, such as Europe/Berlin, or UTC.',
                @schema@.queue_message_quoted(queue_message_zone_error.time_zone)) END
$body$;

-- Why a schedule makes no sense; NULL where it does. What its message may be is said by the INSERT alone.
CREATE FUNCTION @schema@.queue_message_schedule_error(one @schema@.queue_message_schedule, known_zone text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    problem text := @schema@.queue_message_spec_error(one.spec);
BEGIN
    IF one.name !~ '^[ -~[:alnum:]]{1,63}$' THEN
        RETURN 'The name of a schedule must be 1 to 63 printable characters.';
    ELSIF problem IS NOT NULL THEN
        RETURN problem;
    ELSIF one.time_zone IS DISTINCT FROM known_zone AND @schema@.queue_message_zone_error(one.time_zone) IS NOT NULL THEN
        RETURN @schema@.queue_message_zone_error(one.time_zone);
    ELSIF one.missed NOT IN ('skip', 'once', 'all') THEN
        RETURN format('What becomes of missed ticks is %s; it must be one of skip, once, all.', @schema@.queue_message_quoted(one.missed));
    ELSIF one.expires_after NOT BETWEEN '1 millisecond' AND '100 years' THEN
        RETURN 'The time after which a message of a schedule expires must be from 1 millisecond to 100 years.';
    ELSIF @schema@.queue_message_next_tick(one.spec, one.time_zone, now(), one.created_at) IS NULL THEN
        RETURN format('The schedule %s never comes: there is no such date.', @schema@.queue_message_quoted(one.spec));
    END IF;
    RETURN NULL;
END
$body$;

-- Judges a schedule and finds its next tick. Its message is judged by inserting it and taking that back: nothing else is sure to judge as
-- the INSERT that comes at each tick. What was missed while it was paused is not sent, and a change of its times makes no tick due.
CREATE FUNCTION @schema@.queue_message_schedule_check() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    problem text := @schema@.queue_message_schedule_error(NEW, OLD.time_zone);
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'check_violation', TABLE = 'queue_message_schedule';
    END IF;
    -- One whose message is refused by now can still be paused.
    IF NOT NEW.paused OR (NEW.exchange, NEW.routing_key, NEW.content, NEW.options, NEW.ordering_key, NEW.expires_after)
        IS DISTINCT FROM (OLD.exchange, OLD.routing_key, OLD.content, OLD.options, OLD.ordering_key, OLD.expires_after) THEN
        BEGIN
            PERFORM @schema@.queue_message_schedule_send(NEW, now(), now());
            RAISE EXCEPTION USING ERRCODE = 'QM000';
        EXCEPTION WHEN SQLSTATE 'QM000' THEN NULL;
        END;
    END IF;
    NEW.changed_at := now();
    IF NEW.paused THEN
        NEW.next_at := NULL;
    ELSIF TG_OP = 'INSERT' OR OLD.next_at IS NULL OR (NEW.spec, NEW.time_zone) IS DISTINCT FROM (OLD.spec, OLD.time_zone) THEN
        NEW.next_at := @schema@.queue_message_next_tick(NEW.spec, NEW.time_zone, now(), NEW.created_at);
    END IF;
    NEW.last_error := NULL;
    RETURN NEW;
END
$body$;

CREATE TRIGGER queue_message_schedule_check
    BEFORE INSERT OR UPDATE OF name, spec, time_zone, exchange, routing_key, content, options, ordering_key, expires_after, missed, paused
    ON @schema@.queue_message_schedule FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_schedule_check();

-- Ticks are no changes.
CREATE TRIGGER queue_message_schedule_audit
    AFTER INSERT OR DELETE OR UPDATE OF name, spec, time_zone, exchange, routing_key, content, options, ordering_key, expires_after, missed
    ON @schema@.queue_message_schedule FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_audit_change('name', 'schedule', 'unschedule');
CREATE TRIGGER queue_message_schedule_pause_audit AFTER UPDATE OF paused ON @schema@.queue_message_schedule
    FOR EACH ROW WHEN (NEW.paused AND NOT OLD.paused) EXECUTE FUNCTION @schema@.queue_message_audit_change('name', 'pause_schedule', '');
CREATE TRIGGER queue_message_schedule_resume_audit AFTER UPDATE OF paused ON @schema@.queue_message_schedule
    FOR EACH ROW WHEN (OLD.paused AND NOT NEW.paused) EXECUTE FUNCTION @schema@.queue_message_audit_change('name', 'resume_schedule', '');

-- Inserts what one schedule owes up to a time, at most so many messages, and moves it on; returns how many. With skip a tick counts as
-- missed when it is found two minutes late: pg_cron looks once a minute. The tick is looked up again, as the rules of its zone may have
-- changed.
CREATE FUNCTION @schema@.queue_message_schedule_due(one @schema@.queue_message_schedule, clock timestamptz, most int) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    tick timestamptz;
    following timestamptz := @schema@.queue_message_next_tick(
        one.spec, one.time_zone, one.next_at - interval '1 microsecond', one.created_at);
    made uuid;
    inserted int := 0;
BEGIN
    WHILE following <= clock AND inserted < most LOOP
        tick := CASE one.missed WHEN 'all' THEN following
            ELSE @schema@.queue_message_last_tick(one.spec, one.time_zone, following, clock, one.created_at) END;
        IF one.missed <> 'skip' OR tick >= clock - interval '2 minutes' THEN
            made := @schema@.queue_message_schedule_send(one, tick, clock);
            inserted := inserted + 1;
        END IF;
        following := @schema@.queue_message_next_tick(one.spec, one.time_zone, tick, one.created_at);
    END LOOP;
    UPDATE @schema@.queue_message_schedule s SET next_at = following,
        last_at = CASE WHEN inserted > 0 THEN tick ELSE s.last_at END, last_id = coalesce(made, s.last_id),
        last_error = CASE WHEN inserted > 0 THEN NULL ELSE s.last_error END
    WHERE s.name = one.name;
    RETURN inserted;
END
$body$;

-- Notes why a schedule's message was refused, and goes on to its next tick; in an hour where even that cannot be found.
CREATE FUNCTION @schema@.queue_message_schedule_failed(one @schema@.queue_message_schedule, clock timestamptz, problem text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    following timestamptz;
BEGIN
    BEGIN
        following := @schema@.queue_message_next_tick(one.spec, one.time_zone, clock, one.created_at);
    EXCEPTION WHEN data_exception THEN
        following := clock + interval '1 hour';
    END;
    RAISE WARNING 'the schedule % sent nothing: %', @schema@.queue_message_quoted(one.name), problem;
    UPDATE @schema@.queue_message_schedule s SET next_at = following, last_error = left(problem, 1000) WHERE s.name = one.name;
END
$body$;

-- Inserts the messages that schedules owe, and says how many and when the next tick is. However many call it at a time, each tick is
-- inserted once: a schedule is locked until its message and its next tick are committed together, and others step over it. One that owes
-- more than 1,000 ticks stays due. What keeps any message from being inserted, such as a full disk, fails the call, which changes nothing.
CREATE FUNCTION @schema@.queue_message_run_schedules(now timestamptz DEFAULT NULL, OUT inserted int, OUT next_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    one @schema@.queue_message_schedule;
BEGIN
    inserted := 0;
    -- Those that owe each tick last: there may be many, and nobody waits behind them.
    FOR one IN SELECT s.* FROM @schema@.queue_message_schedule s WHERE s.next_at <= clock
               ORDER BY s.missed = 'all', s.next_at, s.name FOR UPDATE SKIP LOCKED LOOP
        CONTINUE WHEN one.missed = 'all' AND inserted >= 1000;
        BEGIN
            inserted := inserted + @schema@.queue_message_schedule_due(one, clock, greatest(1000 - inserted, 1));
        EXCEPTION WHEN OTHERS THEN
            IF left(SQLSTATE, 2) IN ('40', '53', '55', '57', '58', 'XX') THEN
                RAISE;
            END IF;
            PERFORM @schema@.queue_message_schedule_failed(one, clock, @schema@.queue_message_refusal(SQLSTATE, SQLERRM));
        END;
    END LOOP;
    SELECT min(s.next_at) INTO next_at FROM @schema@.queue_message_schedule s;
END
$body$;

CREATE FUNCTION @schema@.queue_message_no_schedule(name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    RAISE EXCEPTION 'There is no schedule %.', @schema@.queue_message_quoted(name) USING ERRCODE = 'no_data_found';
END
$body$;

-- Adds a schedule, or with replace changes the one of that name; returns its first tick, null while it is paused. One that is replaced
-- stays paused if it was, and EVERY goes on counting from when it was added. A schedule may be of any message, so who may not insert one may
-- not schedule one.
CREATE FUNCTION @schema@.queue_message_schedule_add(name text, spec text, exchange text, routing_key text DEFAULT '',
    content jsonb DEFAULT '{}', time_zone text DEFAULT 'UTC', options jsonb DEFAULT '{}', ordering_key text DEFAULT NULL,
    expires_after interval DEFAULT NULL, missed text DEFAULT 'once', paused boolean DEFAULT false, replace boolean DEFAULT false,
    by text DEFAULT session_user)
RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    first timestamptz;
BEGIN
    IF NOT has_any_column_privilege(session_user, format('%I.queue_message', @schema_literal@::text), 'INSERT') THEN
        RAISE EXCEPTION 'To schedule a message a login must be able to insert one.' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO @schema@.queue_message_schedule AS s (name, spec, time_zone, exchange, routing_key, content, options, ordering_key,
        expires_after, missed, paused, created_by)
    VALUES (name, spec, time_zone, exchange, routing_key, content, options, ordering_key, expires_after, missed, paused,
        @schema@.queue_message_signed(by))
    ON CONFLICT ON CONSTRAINT queue_message_schedule_pkey DO UPDATE SET spec = excluded.spec, time_zone = excluded.time_zone,
        exchange = excluded.exchange, routing_key = excluded.routing_key, content = excluded.content, options = excluded.options,
        ordering_key = excluded.ordering_key, expires_after = excluded.expires_after, missed = excluded.missed,
        paused = s.paused OR excluded.paused
    WHERE replace
    RETURNING next_at INTO first;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'There is a schedule % already: remove it first, or replace it (--replace, in SQL replace => true).', @schema@.queue_message_quoted(name)
            USING ERRCODE = 'duplicate_object';
    END IF;
    RETURN first;
END
$body$;

-- Removes a schedule; what it has inserted goes out all the same. True if there was one.
CREATE FUNCTION @schema@.queue_message_schedule_remove(name text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    WITH gone AS (DELETE FROM @schema@.queue_message_schedule s WHERE s.name = queue_message_schedule_remove.name RETURNING 1)
    SELECT EXISTS (SELECT FROM gone)
$body$;

-- Pauses a schedule; true if it was not paused. What it misses is not sent later.
CREATE FUNCTION @schema@.queue_message_schedule_pause(name text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    UPDATE @schema@.queue_message_schedule s SET paused = true WHERE s.name = name AND NOT s.paused;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM @schema@.queue_message_schedule s WHERE s.name = name) THEN
        PERFORM @schema@.queue_message_no_schedule(name);
    END IF;
    RETURN FOUND;
END
$body$;

-- Lets a schedule go on, from now; true if it was paused.
CREATE FUNCTION @schema@.queue_message_schedule_resume(name text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    UPDATE @schema@.queue_message_schedule s SET paused = false WHERE s.name = name AND s.paused;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM @schema@.queue_message_schedule s WHERE s.name = name) THEN
        PERFORM @schema@.queue_message_no_schedule(name);
    END IF;
    RETURN FOUND;
END
$body$;

-- Inserts a schedule's message now, also that of a paused one, and moves no tick; returns its id.
CREATE FUNCTION @schema@.queue_message_schedule_run_now(name text, by text DEFAULT session_user) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one @schema@.queue_message_schedule;
    made uuid;
BEGIN
    SELECT s.* INTO one FROM @schema@.queue_message_schedule s WHERE s.name = name;
    IF NOT FOUND THEN
        PERFORM @schema@.queue_message_no_schedule(name);
    END IF;
    made := @schema@.queue_message_schedule_send(one, NULL, now());
    INSERT INTO @schema@.queue_message_audit (acted_by, action, subject, became)
    VALUES (@schema@.queue_message_signed(by), 'run_schedule', name, jsonb_build_object('id', made));
    RETURN made;
END
$body$;
