-- The queue as a ring of eight partitions, each of which takes the next so many messages and is truncated once it is empty. Claimable rows
-- stand in partial indexes. A unique id over all partitions is not to be had.
CREATE TABLE ring (
    LIKE queue_message INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING GENERATED INCLUDING CONSTRAINTS,
    slot smallint NOT NULL DEFAULT (currval('ring_seq_seq') / 20000 % 8)
) PARTITION BY LIST (slot);
ALTER TABLE ring ADD PRIMARY KEY (slot, xid, seq);
DO $$
BEGIN
    FOR slot IN 0 .. 7 LOOP
        EXECUTE format('CREATE TABLE ring_%s PARTITION OF ring FOR VALUES IN (%s) WITH (fillfactor = 45, vacuum_truncate = off)', slot, slot);
        -- In each partition: with the slot before it, PostgreSQL took it for an index of the slot and walked all of a partition.
        EXECUTE format('CREATE UNIQUE INDEX ON ring_%s (id)', slot);
    END LOOP;
END
$$;
CREATE INDEX ON ring (xid, seq) WHERE lock_expires_at IS NULL AND available_at IS NULL AND ordering_key IS NULL;
CREATE INDEX ON ring (available_at) WHERE lock_expires_at IS NULL AND available_at IS NOT NULL AND ordering_key IS NULL;
-- What the queue does with each INSERT and UPDATE, the ring does too.
DO $$
DECLARE
    definition text;
BEGIN
    FOR definition IN SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'queue_message'::regclass AND NOT tgisinternal LOOP
        EXECUTE replace(definition, ' ON public.queue_message ', ' ON public.ring ');
    END LOOP;
END
$$;
