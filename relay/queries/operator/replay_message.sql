-- Enqueue an archived message again: the only one with its id, or the one at a place.
SELECT CASE WHEN %(xid)s::text IS NULL THEN @schema@.queue_message_replay(%(id)s, %(same_id)s)
    ELSE @schema@.queue_message_replay_at(%(id)s, %(xid)s::text::xid8, %(seq)s, %(same_id)s) END AS id
