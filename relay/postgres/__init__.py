"""The adapter for PostgreSQL: the store and its statements, notifications, migrations."""
