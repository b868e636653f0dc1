-- Limit an exchange, or change its limit or the reason for it; also returns the previous limit.
SELECT (SELECT per_second FROM @schema@.queue_message_limit WHERE exchange = %(exchange)s) AS before,
    @schema@.queue_message_limit(%(exchange)s, %(per_second)s, %(reason)s) AS limited
