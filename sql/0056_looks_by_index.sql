-- What looks for one message or key does so by an index, whatever the statistics say. A session keeps its plans, and those that were made while a
-- table was empty would read all of it for each look, until the table is analysed.

ALTER FUNCTION @schema@.queue_message_cancel(uuid, text) SET enable_seqscan = off SET jit = off;
ALTER FUNCTION @schema@.queue_message_dead_acknowledge(uuid, text, text) SET enable_seqscan = off SET jit = off;
ALTER FUNCTION @schema@.queue_message_dead_replay(uuid, xid8, bigint, integer, text) SET enable_seqscan = off SET jit = off;
ALTER FUNCTION @schema@.queue_message_first(text, text, uuid, integer) SET enable_seqscan = off SET jit = off;
ALTER FUNCTION @schema@.queue_message_known(text, text) SET enable_seqscan = off SET jit = off;
ALTER FUNCTION @schema@.queue_message_replay(uuid, boolean, text) SET enable_seqscan = off SET jit = off;
ALTER FUNCTION @schema@.queue_message_replay_at(uuid, xid8, bigint, boolean, text) SET enable_seqscan = off SET jit = off;
ALTER FUNCTION @schema@.queue_message_replays_before(uuid, xid8, bigint, integer) SET enable_seqscan = off SET jit = off;
