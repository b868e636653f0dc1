-- How long each further statement of this transaction may take.
SELECT set_config('statement_timeout', %(milliseconds)s::bigint::text, true)
