-- The places of messages within which archived messages with an id, or the one at a place, were sent. The fold archived the parts in the
-- transaction that inserted such a message; after a restore a message that waits may be renumbered, and then has the transaction 2, which no
-- producer has.
SELECT bundle.id, bundle.xid || '/' || bundle.seq AS place
FROM (SELECT archived_xid, substring(error_detail FROM %(sent_within)s::text) AS id FROM @schema@.queue_message_state
    WHERE id = %(id)s AND (%(xid)s::text IS NULL OR xid = %(xid)s::text::xid8 AND seq = %(seq)s) AND (state, error_code) = ('discarded', 'bundled')
    ) AS part
    JOIN @schema@.queue_message_state AS bundle ON bundle.id = part.id::uuid AND bundle.xid IN (part.archived_xid, '2')
