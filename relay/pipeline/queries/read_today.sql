-- The current day in UTC.
SELECT (coalesce(%(now)s, now()) AT TIME ZONE 'UTC')::date
