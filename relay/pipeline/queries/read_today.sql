-- The UTC day that is not over.
SELECT (coalesce(%(now)s, now()) AT TIME ZONE 'UTC')::date
