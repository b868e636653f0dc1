-- Archive the messages whose content PostgreSQL itself cannot print.
SELECT @schema@.queue_message_reject_unprintable()
