-- Claimed messages leave the queue; the archive, which is the same everywhere, is left out.
WITH named AS MATERIALIZED (
    SELECT xid, seq FROM unnest(%(xids)s::text::xid8[], %(seqs)s::text::bigint[]) AS named (xid, seq)
)
DELETE FROM @table@ AS message
USING named
WHERE message.xid = ANY(ARRAY[named.xid]) AND message.seq = named.seq AND message.lock_token = %(token)s@slot@
