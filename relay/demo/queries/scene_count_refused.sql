SELECT count(*) FROM inbox.queue_message_archive WHERE result = 'rejected' AND error_code = 'total_negative'
