-- The next transaction's id as this snapshot has it: what was archived at or beyond it came with another cluster's dump.
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint
