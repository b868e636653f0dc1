-- Make a table in which new numbers wait until they are compared with the existing ones; the end of the transaction drops it.
CREATE TEMPORARY TABLE queue_message_stats_staged_@grain@ (LIKE @schema@.queue_message_stats_@grain@) ON COMMIT DROP
