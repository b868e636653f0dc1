-- The pipeline's login: it reads the archive and says what it has verified, and owns nothing.
CREATE ROLE demo_etl LOGIN PASSWORD 'demo' IN ROLE queue_message_etl
