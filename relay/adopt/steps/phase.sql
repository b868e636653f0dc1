-- One at a time, and only from where it was when this was written.
DO $adopt$
BEGIN
    PERFORM FROM @schema@.queue_message_adoption WHERE source = @source_literal@ AND phase = @phase_literal@ FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'Somebody else has changed the phase of % meanwhile: look at relay adopt list, and try again.', @source_literal@;
    END IF;
END
$adopt$;
