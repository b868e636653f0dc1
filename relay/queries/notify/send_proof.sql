-- Heard by every relay of the database; the payload says whose it is.
SELECT pg_catalog.pg_notify('queue_message_proof', %(payload)s)
