-- What retention deletes and drops at once; returns how many days of the archive are gone, and how many dead
-- messages and consumers' marks.
SELECT count(*) FILTER (WHERE r.action = 'dropped'), coalesce(sum(r.messages) FILTER (WHERE r.action = 'deleted'), 0)::bigint
FROM @schema@.queue_message_retain() r
