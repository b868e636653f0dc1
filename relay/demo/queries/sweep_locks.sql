-- What pg_cron or any relay runs each minute.
SELECT released, archived FROM queue_message_sweep_minute()
