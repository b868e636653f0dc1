-- Add a version of a message contract; its number, and whether it was not there before.
SELECT added, made FROM @schema@.queue_message_contract_add(%(exchange)s, %(routing_key)s, %(schema)s::text::jsonb, %(version)s::integer, %(mode)s)
