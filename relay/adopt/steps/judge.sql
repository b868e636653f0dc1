-- Judges rows that are there, the first @limit@ of them, as a mirror would.
DO $adopt$
DECLARE
    one @kept@;
BEGIN
    FOR one IN SELECT * FROM @kept@ LIMIT @limit@ LOOP
        PERFORM @schema@.@send@(one, 'watch');
    END LOOP;
END
$adopt$;
