-- How many bytes of the log up to a position a standby has yet to replay, and whether its replay is paused.
SELECT pg_wal_lsn_diff(%(position)s::text::pg_lsn, pg_last_wal_replay_lsn())::bigint, pg_is_wal_replay_paused()
