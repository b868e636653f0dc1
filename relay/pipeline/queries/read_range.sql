-- As read_cut, for a partition's rows with these results between two times.
SELECT @columns@
FROM @schema@.queue_message_archive
WHERE result IN (@results@) AND archived_at >= '@since@' AND archived_at <= '@last@'
    AND archived_xid >= '@low@'::xid8 AND archived_xid < '@high@'::xid8 AND (seq % @parts@ + @parts@) % @parts@ = @part@
    AND @fault@ IS NULL
