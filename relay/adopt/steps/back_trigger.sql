-- The lock that DROP TRIGGER takes; nothing weaker first, which would have to be raised.
LOCK TABLE @source@ IN ACCESS EXCLUSIVE MODE;
DROP TRIGGER queue_message_adoption ON @source@;
DROP FUNCTION IF EXISTS @schema@.@watch@(), @schema@.@divert@(), @schema@.@send@(@source@, text);
DELETE FROM @schema@.queue_message_adoption_seen WHERE source = @source_literal@;
DELETE FROM @schema@.queue_message_adoption WHERE source = @source_literal@;
