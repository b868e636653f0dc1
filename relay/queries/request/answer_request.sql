-- Write what a handler returned into the row of its request; the settle follows in the same transaction. If it cannot be written, code and
-- sentence say why.
SELECT code, sentence
FROM @schema@.queue_message_answer(%(id)s::text::uuid, %(token)s::text::uuid, %(answer)s::text::jsonb, %(bytes)s::text[])
