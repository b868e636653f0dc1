-- What is here: no queue, a test database, one that is unused, or one in use.
SELECT CASE
    WHEN to_regclass(%(queue)s) IS NULL THEN 'empty'
    WHEN to_regprocedure(%(mark)s) IS NOT NULL THEN 'marked'
    ELSE 'unknown' END
