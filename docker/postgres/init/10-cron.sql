-- Runs once, in a new data folder. `relay migrate` finds the extension and schedules the chores.
CREATE EXTENSION pg_cron;
