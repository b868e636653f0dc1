-- Where new numbers wait until they are compared with what there is; gone with the transaction.
CREATE TEMPORARY TABLE queue_message_stats_staged_@grain@ (LIKE @schema@.queue_message_stats_@grain@) ON COMMIT DROP
