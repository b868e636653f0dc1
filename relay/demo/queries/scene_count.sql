SELECT (SELECT count(*) FROM queue_message WHERE routing_key = %(routing_key)s)
    + (SELECT count(*) FROM queue_message_archive WHERE routing_key = %(routing_key)s)
