-- What becomes of one row: judged by inserting it. how: a mirror (watch) takes that back and notes it; otherwise what can be no message is
-- archived rejected. False: a new row (insert) stays the old relay's; what waited there (take) is asked for.
CREATE OR REPLACE FUNCTION @schema@.@send@(given @kept@, how text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET bytea_output = hex AS $adopt$
#variable_conflict use_variable
DECLARE
    mapped @schema@.queue_message_mapped;
    refusal text;
BEGIN
    -- By itself: what stays is not judged.
    IF how <> 'take' AND (SELECT found.stays FROM (
@mapping@
    ) AS found) THEN
        RETURN false;
    END IF;
    BEGIN
        SELECT found.* INTO mapped FROM (
@mapping@
        ) AS found;
        IF mapped.problem IS NOT NULL THEN
            RAISE check_violation USING MESSAGE = mapped.problem;
        END IF;
        INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at)
        VALUES (coalesce(mapped.id, @schema@.queue_message_uuid()), mapped.exchange, mapped.routing_key, mapped.content, mapped.body,
            mapped.options, mapped.ordering_key, mapped.available_at, mapped.expires_at);
        IF NOT FOUND THEN
            RAISE check_violation USING MESSAGE = 'A trigger of queue_message skips the INSERT without an error.';
        END IF;
        IF how = 'watch' THEN
            RAISE EXCEPTION 'only watched' USING ERRCODE = 'QA001';
        END IF;
    EXCEPTION
        WHEN SQLSTATE 'QA001' THEN NULL;
        WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded THEN
            -- An id that is taken is refused by the old table too.
            IF SQLSTATE = '23505' AND how <> 'watch' THEN
                RAISE;
            END IF;
            refusal := CASE SQLSTATE WHEN '23502' THEN 'the layout finds no value for a column that a message needs (' || SQLERRM || ')'
                ELSE coalesce(@schema@.queue_message_refusal(SQLSTATE, SQLERRM), SQLERRM) END;
    END;
    IF how = 'watch' THEN
        INSERT INTO @schema@.queue_message_adoption_seen (source, exchange, routing_key, problem)
        VALUES (@source_literal@, mapped.exchange, mapped.routing_key, refusal);
    ELSIF refusal IS NOT NULL THEN
        PERFORM @schema@.queue_message_adoption_reject(given, mapped, refusal);
    END IF;
    RETURN true;
END
$adopt$;
REVOKE EXECUTE ON FUNCTION @schema@.@send@(@kept@, text) FROM PUBLIC;
