-- How long the rest of this transaction waits for a lock.
SELECT set_config('lock_timeout', %(milliseconds)s::bigint::text, true)
