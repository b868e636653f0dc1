-- Searches for the heads of keys look for renumbered messages only where some may be left. Without this they walked the index entries of all that
-- were sent, for as long as a session held an old snapshot.

-- No renumbered message has a higher number; 0 where none is left. Renumbering sets it to the highest there is, and each call that has nothing else to
-- do notes what is left. A restore may bring messages that were renumbered elsewhere.
ALTER TABLE @schema@.queue_message_cluster ADD COLUMN renumbered_to bigint NOT NULL DEFAULT 9223372036854775807;

-- The highest number of a renumbered message, 0 where none is left.
CREATE FUNCTION @schema@.queue_message_highest_renumbered() RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    SELECT coalesce((SELECT m.seq FROM @schema@.queue_message m WHERE m.xid = '2' ORDER BY m.xid DESC, m.seq DESC LIMIT 1), 0)
$body$;

-- Notes up to which number renumbered messages are left, if that has changed and nobody renumbers just now.
CREATE FUNCTION @schema@.queue_message_note_renumbered() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF EXISTS (SELECT FROM @schema@.queue_message_cluster c WHERE c.renumbered_to <> @schema@.queue_message_highest_renumbered())
       AND @schema@.queue_message_take_turn('renumber') THEN
        -- Looked up again: whoever had the turn before may have renumbered more.
        UPDATE @schema@.queue_message_cluster c SET renumbered_to = @schema@.queue_message_highest_renumbered();
    END IF;
END
$body$;

-- As before, but a call that finds nothing to do notes up to which number renumbered messages are left.
CREATE OR REPLACE FUNCTION @schema@.queue_message_renumber(
    most integer DEFAULT 1000, OUT renumbered bigint, OUT more boolean, OUT looked bigint, OUT stays text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $body$
#variable_conflict use_variable
DECLARE
    here bigint := @schema@.queue_message_cluster_here();
BEGIN
    IF (most >= 1) IS NOT TRUE THEN
        RAISE EXCEPTION 'At least 1 message is looked at in a call, not %.', coalesce(most::text, 'NULL');
    END IF;
    renumbered := 0;
    more := @schema@.queue_message_has_foreign_ids();
    IF NOT more THEN
        PERFORM @schema@.queue_message_note_renumbered();
        RETURN;
    ELSIF NOT @schema@.queue_message_take_turn('renumber') THEN
        RETURN;
    END IF;
    IF (SELECT bool_and(c.system_identifier = here AND c.walked_xid IS NOT NULL) FROM @schema@.queue_message_cluster c) IS NOT TRUE THEN
        -- Another caller may have ended the walk just now.
        more := @schema@.queue_message_has_foreign_ids();
        IF NOT more THEN
            RETURN;
        END IF;
        PERFORM @schema@.queue_message_renumber_begin(here);
    END IF;
    IF (SELECT c.looking FROM @schema@.queue_message_cluster c) THEN
        looked := @schema@.queue_message_renumber_look(most);
    ELSE
        SELECT s.renumbered, s.looked INTO renumbered, looked FROM @schema@.queue_message_renumber_step(most) s;
        IF looked < most THEN
            stays := @schema@.queue_message_renumber_end();
        END IF;
    END IF;
    -- Something may have come while this went on, below what was looked at.
    more := stays IS NULL AND @schema@.queue_message_has_foreign_ids();
END
$body$;

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_43;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_43() p
    UNION ALL VALUES ('queue_message_relay', 'SELECT (renumbered_to) ON %1$I.queue_message_cluster')
$body$;
