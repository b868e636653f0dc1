-- When each job last changed the lake. What another run wrote later stays.
INSERT INTO @schema@.queue_message_lake_job AS j (job, at)
SELECT job, at FROM unnest(%(jobs)s::text[], %(times)s::timestamptz[]) AS done (job, at) ORDER BY job
ON CONFLICT (job) DO UPDATE SET at = excluded.at WHERE j.at < excluded.at
