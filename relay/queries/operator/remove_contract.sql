-- Remove a version of a message contract, or all versions; returns how many were removed.
SELECT @schema@.queue_message_contract_remove(%(exchange)s, %(routing_key)s, %(version)s::integer) AS removed
