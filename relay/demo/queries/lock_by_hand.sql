-- A worker of another kind that follows the convention: it takes the message, counts an attempt, and has one second.
UPDATE queue_message SET lock_expires_at = now() + make_interval(secs => 1), attempts = attempts + 1 WHERE id = %(id)s
