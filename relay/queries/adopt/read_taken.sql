-- How many rows of another outbox the last statement has moved.
SELECT current_setting('relay.taken')::bigint AS rows
