-- Results of the newest settled messages, found by the index of archived_xid, and how many of them the last minute saw.
SELECT result, error_code, count(*) AS messages, count(*) FILTER (WHERE archived_at > now() - interval '60 seconds') AS last_minute,
    extract(epoch FROM now() - min(archived_at))::float8 AS oldest_seconds
FROM (SELECT result, error_code, archived_at FROM @schema@.queue_message_archive ORDER BY archived_xid DESC LIMIT %(most)s) AS newest
GROUP BY result, error_code
ORDER BY messages DESC, result, error_code
