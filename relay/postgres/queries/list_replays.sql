-- What an archived message was enqueued as again.
SELECT id, state, created_at FROM @schema@.queue_message_state WHERE replay_of = %(id)s ORDER BY created_at
