-- Write when each job last changed the lake; a later time that another run wrote stays.
INSERT INTO @schema@.queue_message_lake_job AS j (job, at)
SELECT job, at FROM unnest(%(jobs)s::text[], %(times)s::timestamptz[]) AS done (job, at) ORDER BY job
ON CONFLICT (job) DO UPDATE SET at = excluded.at WHERE j.at < excluded.at
