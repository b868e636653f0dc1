-- The pipeline's login: it reads the archive, records what it has verified, and may replay; it owns nothing.
CREATE ROLE demo_etl LOGIN PASSWORD 'demo';
SELECT queue_message_admit('etl', 'demo_etl'), queue_message_admit('replayer', 'demo_etl')
