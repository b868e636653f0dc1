-- The oldest transaction that still runs: what is archived from now on is at or above it.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS floor
