-- Statements of one relay that still run, and its connections that are still open.
SELECT count(*) FILTER (WHERE state = 'active'), count(*) FROM pg_stat_activity WHERE starts_with(application_name, %(prefix)s)
