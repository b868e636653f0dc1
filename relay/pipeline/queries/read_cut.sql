-- The rows of one cut, for COPY: without parameters, as only whole numbers are put in. Rows that no lake can hold are left out.
SELECT @columns@
FROM @schema@.queue_message_archive
WHERE archived_xid >= '@low@'::xid8 AND archived_xid < '@high@'::xid8 AND (seq % @parts@ + @parts@) % @parts@ = @part@
    AND @fault@ IS NULL
