-- Sets, to the end of the transaction, the search path that this login has by its role, its database or its connection string.
SELECT set_config('search_path', reset_val, true) FROM pg_settings WHERE name = 'search_path'
