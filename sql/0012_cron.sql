-- The chores from the database alone, where pg_cron is installed in it; living relays do the same work. Nothing depends on it.

-- Schedules (again) the jobs of this schema; false where pg_cron is not here. A job's name carries the schema.
CREATE FUNCTION @schema@.queue_message_cron() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    job record;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_cron') THEN
        RETURN false;
    END IF;
    FOR job IN VALUES
        ('sweep',      '* * * * *',  'SELECT %1$I.queue_message_sweep_minute()'),
        ('renotify',   '* * * * *',  'SELECT %1$I.queue_message_renotify()'),
        ('schedules',  '* * * * *',  'SELECT * FROM %1$I.queue_message_run_schedules()'),
        ('fold',       '* * * * *',  'SELECT * FROM %1$I.queue_message_fold()'),
        ('partitions', '7 * * * *',  'SELECT %1$I.queue_message_ensure_partitions()'),
        ('retain',     '23 * * * *', 'SELECT * FROM %1$I.queue_message_retain()'),
        -- pg_cron keeps a row for each run, for ever.
        ('tidy',       '41 3 * * *', 'DELETE FROM cron.job_run_details d USING cron.job j WHERE j.jobid = d.jobid AND j.jobname LIKE %2$L '
                                     'AND d.end_time < now() - interval ''7 days''')
    LOOP
        EXECUTE 'SELECT cron.schedule($1, $2, $3)' USING
            format('queue_message %s %s', @schema_literal@::text, job.column1), job.column2,
            format(job.column3, @schema_literal@::text, E'queue\\_message %');
    END LOOP;
    RETURN true;
END
$body$;
