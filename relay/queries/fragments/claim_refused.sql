CASE WHEN row_number() OVER in_order = 1 THEN (
        SELECT json_agg(json_build_array(tried.xid::text::bigint, tried.seq, message.id, message.exchange, tried.state,
                tried.words))::text
        FROM tried JOIN @schema@.queue_message AS message ON message.xid = ANY(ARRAY[tried.xid]) AND message.seq = tried.seq
        WHERE tried.state IS NOT NULL) END
