INSERT INTO queue_message_receipt (message_id, queue, received_at, consumer)
VALUES (%(message_id)s, %(queue)s, to_timestamp(%(at)s), %(consumer)s)
