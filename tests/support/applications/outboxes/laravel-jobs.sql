-- The table `jobs` that laravel/framework's stub jobs.stub makes on PostgreSQL, restated from commit 56ab031 (MIT licence); what its grammar
-- writes for bigIncrements, string, longText, unsignedTinyInteger and unsignedInteger.
CREATE TABLE public.jobs (
    id bigserial PRIMARY KEY,
    queue character varying(255) NOT NULL,
    payload text NOT NULL,
    attempts smallint NOT NULL,
    reserved_at integer,
    available_at integer NOT NULL,
    created_at integer NOT NULL
);
CREATE INDEX jobs_queue_reserved_at_index ON public.jobs (queue, reserved_at);
