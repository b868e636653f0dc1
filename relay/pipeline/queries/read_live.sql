-- One range of the live archive for an analyst: as read_cut, with an additional condition.
SELECT @columns@
FROM @schema@.queue_message_archive
WHERE archived_xid >= '@low@'::xid8 AND archived_xid < '@high@'::xid8 AND (seq % @parts@ + @parts@) % @parts@ = @part@ AND (@condition@)
