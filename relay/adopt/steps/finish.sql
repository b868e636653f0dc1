UPDATE @schema@.queue_message_adoption SET phase = 'finished', changed_at = now() WHERE source = @source_literal@;
