-- Figures keep the names that the archive has. One that came in beside the triggers may be longer than RabbitMQ allows, and had its figures
-- refused together with all others.
ALTER TABLE @schema@.queue_message_stats_day
    DROP CONSTRAINT queue_message_stats_day_exchange_check,
    ADD CONSTRAINT queue_message_stats_day_exchange_check
        CHECK (@schema@.queue_message_check_size('exchange', octet_length(exchange), 4000)) NOT VALID,
    DROP CONSTRAINT queue_message_stats_day_routing_key_check,
    ADD CONSTRAINT queue_message_stats_day_routing_key_check
        CHECK (@schema@.queue_message_check_size('routing_key', octet_length(routing_key), 4000)) NOT VALID;
ALTER TABLE @schema@.queue_message_stats_hour
    DROP CONSTRAINT queue_message_stats_hour_exchange_check,
    ADD CONSTRAINT queue_message_stats_hour_exchange_check
        CHECK (@schema@.queue_message_check_size('exchange', octet_length(exchange), 4000)) NOT VALID,
    DROP CONSTRAINT queue_message_stats_hour_routing_key_check,
    ADD CONSTRAINT queue_message_stats_hour_routing_key_check
        CHECK (@schema@.queue_message_check_size('routing_key', octet_length(routing_key), 4000)) NOT VALID;
ALTER TABLE @schema@.queue_message_stats_window
    DROP CONSTRAINT queue_message_stats_window_exchange_check,
    ADD CONSTRAINT queue_message_stats_window_exchange_check
        CHECK (@schema@.queue_message_check_size('exchange', octet_length(exchange), 4000)) NOT VALID,
    DROP CONSTRAINT queue_message_stats_window_routing_key_check,
    ADD CONSTRAINT queue_message_stats_window_routing_key_check
        CHECK (@schema@.queue_message_check_size('routing_key', octet_length(routing_key), 4000)) NOT VALID;
