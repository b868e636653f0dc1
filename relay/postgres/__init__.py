"""The PostgreSQL side: the store and its statements, notifications, migrations."""
