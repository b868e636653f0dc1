-- What retention deletes and drops at once; returns how many days of the archive are gone, and how many dead messages and consumers' marks.
-- If it has looked at as many keys as it does at once, this counts as one more deletion: there is more to do.
SELECT count(*) FILTER (WHERE r.action = 'dropped'),
    coalesce(sum(r.messages) FILTER (WHERE r.action = 'deleted'), 0)::bigint + count(*) FILTER (WHERE r.action = 'unfinished')
FROM @schema@.queue_message_retain() r
