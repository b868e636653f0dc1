-- Add a version of a message contract; returns its number, and whether it is new.
SELECT added, made FROM @schema@.queue_message_contract_add(%(exchange)s, %(routing_key)s, %(schema)s::text::jsonb, %(version)s::integer, %(mode)s)
