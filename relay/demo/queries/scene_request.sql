SELECT fetching.queue_message_request('url_fetch', answers => '{response_at,response_code,response_body}', error => 'error')
