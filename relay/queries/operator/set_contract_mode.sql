-- Change what becomes of messages that break a contract; returns the version, and its previous mode.
SELECT changed, previous FROM @schema@.queue_message_contract_mode(%(exchange)s, %(routing_key)s, %(mode)s, %(version)s::integer)
