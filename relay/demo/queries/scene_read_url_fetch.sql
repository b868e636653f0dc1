SELECT response_code, response_body, error FROM url_fetch WHERE id = %(id)s
