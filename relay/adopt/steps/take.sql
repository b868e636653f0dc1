-- Moves some rows of these states, each in the transaction that deletes it. What the old relay has locked or claims meanwhile is stepped
-- over: the lock looks at the row again.
DO $adopt$
DECLARE
    one @kept@;
    taken bigint := 0;
BEGIN
    FOR one IN
        SELECT given.* FROM @kept@ AS given CROSS JOIN LATERAL (
@mapping@
        ) AS found
        WHERE found.state = ANY (@states_literal@::text[]) ORDER BY @order@ LIMIT @limit@ FOR UPDATE OF given SKIP LOCKED
    LOOP
        PERFORM @schema@.@send@(one, 'take');
        DELETE FROM @kept@ AS given WHERE @same_as_one@;
        IF NOT FOUND THEN
            RAISE restrict_violation USING MESSAGE = 'A trigger, a rule or a policy keeps rows in ' || @kept_literal@
                || ' that are to become messages: nothing was taken.';
        END IF;
        taken := taken + 1;
    END LOOP;
    PERFORM set_config('relay.taken', taken::text, true);
END
$adopt$;
