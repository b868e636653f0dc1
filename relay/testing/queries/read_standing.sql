-- What stands here: no queue, a test database, one that nobody has used yet, or one that is somebody's.
SELECT CASE
    WHEN to_regclass(%(queue)s) IS NULL THEN 'empty'
    WHEN to_regprocedure(%(mark)s) IS NOT NULL THEN 'marked'
    ELSE 'unknown' END
