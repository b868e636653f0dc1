-- Who inserts and deletes in one transaction counts the row that it deletes.
CREATE OR REPLACE FUNCTION @schema@.@delete@() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $adopt$
BEGIN
    DELETE FROM @view_kept@ AS given WHERE given.@own_column@ = OLD.@own_column@;
    RETURN OLD;
END
$adopt$;
REVOKE EXECUTE ON FUNCTION @schema@.@delete@() FROM PUBLIC;
CREATE TRIGGER queue_message_adoption_delete INSTEAD OF DELETE ON @source@ FOR EACH ROW EXECUTE FUNCTION @schema@.@delete@();
