"""The schema: its migrations, and whose logins reach which outbox."""
