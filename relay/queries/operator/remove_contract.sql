-- Remove a version of a message contract, or all of them; how many there were.
SELECT @schema@.queue_message_contract_remove(%(exchange)s, %(routing_key)s, %(version)s::integer) AS removed
