-- Make the heads of these ordering keys due: whoever takes a head away without owning its lane leaves a note for the owner.
SELECT @schema@.queue_message_wake_key(ordering_key) FROM unnest(%(keys)s::text[]) AS freed (ordering_key)
