-- Write what a handler returned into the row of its request; the settle follows in the same transaction. Says why not by code and sentence.
SELECT code, sentence
FROM @schema@.queue_message_answer(%(id)s::text::uuid, %(token)s::text::uuid, %(answer)s::text::jsonb, %(bytes)s::text[])
