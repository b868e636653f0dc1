"""The schema: its migrations, and which logins reach which outbox."""
