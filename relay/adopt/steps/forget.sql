-- The table went with its triggers, and with the function that has a row of it as its argument.
DROP FUNCTION IF EXISTS @schema@.@watch@(), @schema@.@divert@(), @schema@.@delete@();
DELETE FROM @schema@.queue_message_adoption_seen WHERE source = @source_literal@;
DELETE FROM @schema@.queue_message_adoption WHERE source = @source_literal@;
