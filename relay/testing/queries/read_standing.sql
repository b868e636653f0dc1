-- What is here: no queue, a test database, or a queue of which read_used says whether it is in use.
SELECT CASE
    WHEN to_regclass(%(queue)s) IS NULL THEN 'empty'
    WHEN to_regprocedure(%(mark)s) IS NOT NULL THEN 'marked'
    ELSE 'unknown' END
