-- The boundary: no session reads or writes the table now. A statement that waits for this lock looks its name up again and finds the view.
LOCK TABLE @source@ IN ACCESS EXCLUSIVE MODE;
DROP TRIGGER queue_message_adoption ON @source@;
DROP FUNCTION @schema@.@watch@();
ALTER TABLE @source@ RENAME TO @aside@;
CREATE VIEW @source@ AS
SELECT * FROM @view_kept@@own@;
COMMENT ON VIEW @source@ IS 'Rows inserted here become messages of outbox-relay (relay adopt); those from before are in the table that it shows.';
@view_defaults@
CREATE OR REPLACE FUNCTION @schema@.@divert@() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $adopt$
DECLARE
    given @view_kept@;
BEGIN
@checks@
    given := ROW(NEW.*);
    IF NOT @schema@.@send@(given, 'insert') THEN
        INSERT INTO @view_kept@ OVERRIDING SYSTEM VALUE SELECT (given).*;
    END IF;
    RETURN NEW;
END
$adopt$;
REVOKE EXECUTE ON FUNCTION @schema@.@divert@() FROM PUBLIC;
CREATE TRIGGER queue_message_adoption INSTEAD OF INSERT ON @source@ FOR EACH ROW EXECUTE FUNCTION @schema@.@divert@();
@deletes@
DO $adopt$
DECLARE
    one record;
BEGIN
    EXECUTE format('ALTER VIEW %s OWNER TO %I', @source_literal@,
        (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = @view_kept_literal@::regclass));
    FOR one IN
        SELECT a.privilege_type, granted.columns, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee
        FROM (SELECT relacl AS acl, '' AS columns FROM pg_class WHERE oid = @view_kept_literal@::regclass
              UNION ALL SELECT attacl, format(' (%I)', attname) FROM pg_attribute WHERE attrelid = @view_kept_literal@::regclass) AS granted,
            aclexplode(granted.acl) AS a
        WHERE a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'REFERENCES', 'TRIGGER')
    LOOP
        EXECUTE format('GRANT %s%s ON %s TO %s', one.privilege_type, one.columns, @source_literal@, one.grantee);
    END LOOP;
END
$adopt$;
DELETE FROM @schema@.queue_message_adoption_seen WHERE source = @source_literal@;
UPDATE @schema@.queue_message_adoption
SET phase = 'switched', kept = @view_kept_literal@, changed_at = now(), switched_at = pg_current_wal_insert_lsn()
WHERE source = @source_literal@;
