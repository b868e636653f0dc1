-- The server's time.
SELECT now()
