-- Who has inserted through the view holds a lock against this one; who waits looks the name up again and finds the table.
DROP VIEW @source@;
ALTER TABLE @kept@ RENAME TO @name@;
DROP FUNCTION IF EXISTS @schema@.@divert@(), @schema@.@delete@(), @schema@.@send@(@source@, text);
DELETE FROM @schema@.queue_message_adoption WHERE source = @source_literal@;
