SELECT (SELECT count(*) FROM queue_message), (SELECT count(*) FROM queue_message_archive WHERE result = 'success'),
    (SELECT count(*) FROM queue_message_dead)
