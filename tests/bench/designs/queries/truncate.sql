-- A partition begins anew if nobody has a row in it. Its writers are waited for, so that none adds one meanwhile.
DO $$
BEGIN
    IF EXISTS (SELECT FROM @partition@) THEN
        RETURN;
    END IF;
    SET LOCAL lock_timeout = '200ms';
    LOCK TABLE @partition@ IN ACCESS EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM @partition@) THEN
        TRUNCATE @partition@;
    END IF;
EXCEPTION WHEN lock_not_available THEN
    NULL;
END
$$
