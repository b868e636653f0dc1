-- Let one transaction at a time replay by id, so that the second one sees what the first has replayed.
SELECT @schema@.queue_message_lock_replays()
