-- Which cluster this is, the bound below which nothing can be added any more, the next transaction's id, and whether it is a standby.
-- A primary names its timeline in the file that it writes to; the control file follows only with the next checkpoint.
SELECT (SELECT system_identifier FROM pg_control_system())::text,
       CASE WHEN pg_is_in_recovery()
            THEN coalesce((SELECT received_tli FROM pg_stat_wal_receiver), (SELECT timeline_id FROM pg_control_checkpoint()))
            ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer END,
       current_database()::text,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
       pg_is_in_recovery()
