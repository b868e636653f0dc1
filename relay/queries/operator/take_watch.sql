-- Be the one watch with these handlers, for as long as this session lasts; false while another session is the watch.
SELECT @schema@.queue_message_take_watch(%(handlers)s) AS taken
