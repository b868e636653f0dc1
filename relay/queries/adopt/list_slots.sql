-- Logical replication slots of this database, and which of them have confirmed everything up to a place in the WAL.
SELECT slot_name AS slot, plugin, active, confirmed_flush_lsn::text AS confirmed, coalesce(confirmed_flush_lsn >= %(place)s::pg_lsn, false) AS passed
FROM pg_catalog.pg_replication_slots
WHERE slot_type = 'logical' AND database = pg_catalog.current_database() AND (%(name)s::text IS NULL OR slot_name = %(name)s)
ORDER BY slot_name
