-- What make_outbox_table() of modern-python/faststream-outbox declares for PostgreSQL, restated from commit 6f8a279 of August 2026 (after
-- 0.9.1, MIT licence), under its default name.
CREATE TABLE public.outbox (
    id bigserial PRIMARY KEY,
    queue character varying(255) NOT NULL,
    payload bytea NOT NULL,
    headers jsonb,
    attempts_count bigint NOT NULL DEFAULT 0,
    deliveries_count bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    first_attempt_at timestamptz,
    last_attempt_at timestamptz,
    acquired_at timestamptz,
    acquired_token uuid,
    timer_id character varying(255),
    CONSTRAINT outbox_lease_ck CHECK ((acquired_token IS NULL) = (acquired_at IS NULL))
);
CREATE INDEX outbox_pending_idx ON public.outbox (queue, next_attempt_at) WHERE acquired_token IS NULL;
CREATE INDEX outbox_lease_idx ON public.outbox (queue, acquired_at) WHERE acquired_token IS NOT NULL;
CREATE UNIQUE INDEX outbox_timer_id_uq ON public.outbox (queue, timer_id) WHERE timer_id IS NOT NULL;
