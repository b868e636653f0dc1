CREATE OR REPLACE FUNCTION @schema@.@watch@() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $adopt$
BEGIN
    PERFORM @schema@.@send@(NEW, 'watch');
    RETURN NULL;
END
$adopt$;
REVOKE EXECUTE ON FUNCTION @schema@.@watch@() FROM PUBLIC;
CREATE TRIGGER queue_message_adoption AFTER INSERT ON @source@ FOR EACH ROW EXECUTE FUNCTION @schema@.@watch@();
INSERT INTO @schema@.queue_message_adoption (source, kept, layout, options, "by", phase)
VALUES (@source_literal@, @source_literal@, @layout_literal@, @options_literal@, @by_literal@, 'mirror');
