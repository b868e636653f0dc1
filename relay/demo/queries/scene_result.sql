SELECT result, error_code, error_detail FROM queue_message_archive WHERE id = %(id)s
