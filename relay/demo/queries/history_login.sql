-- The pipeline's login: it reads the archive, says what it has verified, and may send again; it owns nothing.
CREATE ROLE demo_etl LOGIN PASSWORD 'demo';
SELECT queue_message_admit('etl', 'demo_etl'), queue_message_admit('replayer', 'demo_etl')
