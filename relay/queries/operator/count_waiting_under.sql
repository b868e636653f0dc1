-- How many messages with these ordering keys are not archived yet.
SELECT @schema@.queue_message_waiting_under(%(ordering_keys)s::text[]) AS messages
