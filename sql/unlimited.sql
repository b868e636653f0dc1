-- What somebody set as a rule for applications does not cut this transaction short. A server that does not know a setting has none.
DO $do$
BEGIN
    PERFORM set_config(name, '0', true) FROM pg_settings
    WHERE name IN ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout');
END
$do$;
