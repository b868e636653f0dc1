-- The basic outbox table of Debezium's event router, restated from its documentation (outbox-event-router.adoc at commit 0135819, Apache
-- License 2.0), under the name of its example.
CREATE TABLE public.outboxevent (
    id uuid NOT NULL PRIMARY KEY,
    aggregatetype character varying(255) NOT NULL,
    aggregateid character varying(255) NOT NULL,
    type character varying(255) NOT NULL,
    payload jsonb
);
