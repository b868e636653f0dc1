-- Messages that were sent within a message, or that it replaced when it was sent, in their order: the fold archived them in the transaction
-- that inserted that message.
SELECT id, error_code FROM @schema@.queue_message_state
WHERE archived_xid = ANY (ARRAY(
        SELECT xid FROM @schema@.queue_message_state WHERE id = %(id)s AND (%(xid)s::text IS NULL OR xid = %(xid)s::text::xid8 AND seq = %(seq)s)))
  AND (error_code, error_detail) IN (('bundled', format('sent within %%s', %(id)s::uuid)), ('superseded', format('replaced by %%s', %(id)s::uuid)))
ORDER BY seq LIMIT %(most)s
