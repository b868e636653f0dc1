-- psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -qAt -f pay.sql
BEGIN;
INSERT INTO invoice (total) VALUES (120) RETURNING id AS invoice \gset
INSERT INTO queue_message (exchange, routing_key, content)
VALUES ('shop', 'order.paid', jsonb_build_object('invoice', :invoice, 'total', 120))
RETURNING id;
COMMIT;

-- The bank refuses this one: neither the invoice nor its message is there.
BEGIN;
INSERT INTO invoice (total) VALUES (5000) RETURNING id AS invoice \gset
INSERT INTO queue_message (exchange, routing_key, content)
VALUES ('shop', 'order.paid', jsonb_build_object('invoice', :invoice, 'total', 5000));
ROLLBACK;
