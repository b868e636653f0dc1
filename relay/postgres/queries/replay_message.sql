-- Enqueue an archived message again.
SELECT @schema@.queue_message_replay(%(id)s, %(same_id)s) AS id
