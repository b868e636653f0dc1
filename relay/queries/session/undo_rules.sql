-- Undoes what is set as a rule for the applications of a role or a database. The relay itself limits how long a statement or a rest lasts.
-- Each of its transactions sees what is committed, and its plans need every kind of scan. A server that does not know a setting has none.
SELECT set_config(name, boot_val, false) FROM pg_settings
WHERE starts_with(name, 'enable_') OR name IN ('default_transaction_deferrable', 'default_transaction_isolation',
    'idle_in_transaction_session_timeout', 'idle_session_timeout', 'statement_timeout', 'transaction_timeout')
