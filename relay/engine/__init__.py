"""The loop: claim, publish, decide, settle. It knows neither SQL nor AMQP nor settings."""
