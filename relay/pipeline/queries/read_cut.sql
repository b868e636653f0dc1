-- The rows of one cut, for COPY: no parameters, whole numbers only are put in. Rows that no lake can hold are left out.
SELECT @columns@
FROM @schema@.queue_message_archive
WHERE archived_xid >= '@low@'::xid8 AND archived_xid < '@high@'::xid8 AND (seq % @parts@ + @parts@) % @parts@ = @part@
    AND @fault@ IS NULL
