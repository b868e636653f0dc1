-- Which archived messages another transaction has replayed: when, and as what. With a place the message at it is meant, without a place the
-- newest one that was archived under the id. A replay with the same id counts if it still waits or was sent. If several messages have one
-- id, a replay counts for the place that audit or ledger notes. The audit knows of replays that retention has dropped; before migration 44 it
-- noted no places.
WITH meant AS MATERIALIZED (
    SELECT DISTINCT ON (asked.id, asked.xid, asked.seq) asked.id, asked.xid::text AS xid, asked.seq, format('%%s/%%s', kept.xid, kept.seq) AS place,
        kept.archived_at, kept.state = 'success' AND kept.replay_of = kept.id AS sent_again
    FROM unnest(%(ids)s::uuid[], %(xids)s::text[]::xid8[], %(seqs)s::bigint[]) AS asked (id, xid, seq) JOIN @schema@.queue_message_state AS kept
        ON kept.id = asked.id AND (asked.xid IS NULL OR kept.xid = asked.xid AND kept.seq = asked.seq)
    WHERE kept.id = ANY(%(ids)s) AND kept.archived_at IS NOT NULL ORDER BY asked.id, asked.xid, asked.seq, kept.archived_xid DESC, kept.archived_at DESC
), replays AS MATERIALIZED (
    SELECT sent.replay_of AS id, sent.id AS replayed_as, sent.created_at AS replayed_at, coalesce(sent.archived_at, 'infinity') AS known_until,
        @schema@.queue_message_replay_place(sent.replay_of, sent.id, coalesce(sent.archived_at, 'infinity')) AS place
    FROM @schema@.queue_message_state AS sent
    WHERE sent.replay_of = ANY(%(ids)s) AND sent.xid <> pg_current_xact_id()
    UNION ALL
    SELECT subject::uuid, (became ->> 'id')::uuid, acted_at, acted_at, became ->> 'place' FROM @schema@.queue_message_audit AS audit
    WHERE action = 'replay' AND subject = ANY(%(ids)s::text[]) AND audit.xmin <> pg_current_xact_id()::xid
)
SELECT DISTINCT ON (meant.id, meant.xid, meant.seq) meant.id, meant.xid, meant.seq, replayed_as, replayed_at
FROM meant JOIN replays ON replays.id = meant.id AND (replayed_as <> meant.id OR known_until > meant.archived_at OR sent_again)
    AND (meant.xid IS NULL OR coalesce(replays.place, meant.place) = meant.place OR sent_again AND replayed_as = meant.id)
ORDER BY meant.id, meant.xid, meant.seq, replayed_at DESC
