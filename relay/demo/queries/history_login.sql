-- The pipeline's login: it reads the archive, says what it has verified, and may send again; it owns nothing.
CREATE ROLE demo_etl LOGIN PASSWORD 'demo' IN ROLE queue_message_etl, queue_message_replayer
