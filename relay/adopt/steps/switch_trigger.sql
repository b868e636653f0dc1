-- The boundary. A transaction that has inserted holds a lock against this one until it ends. So each transaction's rows are the old
-- relay's, if it committed before, or ours.
LOCK TABLE @source@ IN SHARE ROW EXCLUSIVE MODE;
-- After the row is there, so that RETURNING, counts of rows, ON CONFLICT and constraints are as they were; and gone before anybody sees it.
CREATE OR REPLACE FUNCTION @schema@.@divert@() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $adopt$
BEGIN
    IF @schema@.@send@(NEW, 'insert') THEN
        DELETE FROM @source@ AS given WHERE @same_as_new@;
        -- What something of the table's own keeps there would be sent by both.
        IF NOT FOUND THEN
            RAISE restrict_violation USING MESSAGE = 'A trigger, a rule or a policy keeps rows in ' || @source_literal@
                || ' that have become messages: undo the switch with relay adopt back.';
        END IF;
    END IF;
    RETURN NULL;
END
$adopt$;
REVOKE EXECUTE ON FUNCTION @schema@.@divert@() FROM PUBLIC;
-- In the place of the mirror's, which needs no lock against readers, as DROP does.
CREATE OR REPLACE TRIGGER queue_message_adoption AFTER INSERT ON @source@ FOR EACH ROW EXECUTE FUNCTION @schema@.@divert@();
DROP FUNCTION @schema@.@watch@();
DELETE FROM @schema@.queue_message_adoption_seen WHERE source = @source_literal@;
UPDATE @schema@.queue_message_adoption SET phase = 'switched', changed_at = now(), switched_at = pg_current_wal_insert_lsn()
WHERE source = @source_literal@;
