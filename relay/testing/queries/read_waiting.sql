-- What is committed and not settled, in the order in which it goes out if nothing waits, as one JSON text.
SELECT CAST(coalesce(json_agg(message ORDER BY message.xid, message.seq), '[]') AS text)
FROM (
@messages@
) AS message
