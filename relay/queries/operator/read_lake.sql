-- What is known of the lake, and whether it was seen lately.
SELECT registered, exported, seen, seen_seconds, problem FROM @schema@.queue_message_lake
