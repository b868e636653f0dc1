-- Undoes settings that are rules for the applications of a role or a database. The relay itself limits how long a statement, or a rest
-- within a transaction, lasts. Each of its transactions must see what is committed, and its plans need every kind of scan. A setting that
-- the server does not know is passed over.
SELECT set_config(name, boot_val, false) FROM pg_settings
WHERE starts_with(name, 'enable_') OR name IN ('default_transaction_deferrable', 'default_transaction_isolation',
    'idle_in_transaction_session_timeout', 'idle_session_timeout', 'statement_timeout', 'transaction_timeout')
