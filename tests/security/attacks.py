"""What a producer's login may try against others, as SQL and publish options; see SECURITY.md, "What a producer can do to others"."""

from __future__ import annotations

from typing import Any, Final

READS: Final = (
    "SELECT content FROM public.queue_message",
    "SELECT content FROM public.queue_message_archive",
    "COPY public.queue_message TO STDOUT",
    "SELECT * FROM public.queue_message_state",
    "SELECT content FROM public.queue_message_app",
    "SELECT * FROM public.queue_message_audit",
    "SELECT * FROM page",
    "TABLE public.queue_message_request_row",
)
WRITES: Final = (
    "DELETE FROM public.queue_message",
    "UPDATE public.queue_message SET lock_expires_at = 'infinity'",
    "INSERT INTO public.queue_message (exchange, locked_by) VALUES ('e', 1)",
    "SELECT id FROM public.queue_message FOR UPDATE",
    "SELECT id FROM public.queue_message FOR KEY SHARE",
    "LOCK TABLE public.queue_message IN ACCESS EXCLUSIVE MODE",
    "LOCK TABLE public.queue_message IN SHARE MODE",
    "TRUNCATE public.queue_message",
    "SELECT public.queue_message_pause('{exchange}')",
    "SELECT public.queue_message_cancel(id) FROM public.queue_message",
    "SELECT public.queue_message_answer(id, id, '{{}}') FROM public.queue_message",
    "SET session_replication_role = replica",
    "CREATE TRIGGER mine BEFORE INSERT ON public.queue_message FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'",
    "UPDATE page SET answer = 'forged'",
    "SELECT public.queue_message_limit('{exchange}', 1)",
    "SELECT public.queue_message_key_park('mine')",
    "SELECT public.queue_message_key_skip('mine')",
    "SELECT public.queue_message_config_set('max_body_bytes', '1')",
    "SELECT public.queue_message_replay(id) FROM public.queue_message_archive",
    "SELECT public.queue_message_retain()",
    "SELECT public.queue_message_fold()",
    "INSERT INTO public.queue_message_archive (id) SELECT id FROM public.queue_message",
    "UPDATE public.queue_message_setting SET value = '1'",
    "DELETE FROM public.queue_message_keyed",
    "UPDATE public.queue_message_keyed SET coalesce_key = 'mine'",
    "DELETE FROM public.queue_message_dedup",
    "INSERT INTO public.queue_message_dedup VALUES ('{exchange}', '1', gen_random_uuid(), 'infinity')",
    "INSERT INTO public.queue_message_keyed_row (id) SELECT id FROM public.queue_message",
    "ALTER TABLE public.queue_message DISABLE TRIGGER ALL",
    "DROP TABLE public.queue_message",
    "CREATE RULE mine AS ON INSERT TO public.queue_message DO INSTEAD NOTHING",
)
"""What a producer may never do."""
WITH_ID: Final = (
    "INSERT INTO public.queue_message (id, exchange, routing_key, content) VALUES (%s, %s, 'key', '{}') ON CONFLICT DO NOTHING",
    "INSERT INTO public.queue_message_keyed (id, exchange, routing_key, content, coalesce_key) VALUES (%s, %s, 'key', '{}', 'evil')",
    "INSERT INTO public.queue_message_keyed (id, exchange, routing_key, content, bundle_key) VALUES (%s, %s, 'key', '{}', 'evil')",
)
"""Ways to insert with an id of one's choice."""
COLUMNS: Final[tuple[dict[str, str], ...]] = (
    {"ordering_key": "'evil'"},
    {"ordering_key": "'evil' || n"},
    {"ordering_key": "'evil'", "available_at": "now() + interval '0.5 s'"},
    {"available_at": "now() + interval '0.5 s'"},
    {"available_at": "now() - interval '1 day'"},
    {"available_at": "now() + n * interval '1 day'"},
    {"expires_at": "now()"},
    {"ordering_key": "repeat('k', 1020) || n"},
)
"""What else a message may have; keys that the victim has are no other producer's to use."""
KEYS: Final[tuple[dict[str, str], ...]] = (
    {"dedup_key": "'evil'"},
    {"dedup_key": "n::text", "dedup_seconds": "1"},
    {"coalesce_key": "'evil' || n"},
    {"coalesce_key": "'evil'", "available_at": "now() - interval '1 day'"},
    {"bundle_key": "'evil'", "available_at": "now() + interval '0.5 s'"},
    {"bundle_key": "repeat('k', 1020) || n", "dedup_key": "'evil' || n"},
)
"""The same of messages that are inserted under keys."""
LARGE: Final = (
    "jsonb_build_object('from', 'attacker', 'long', repeat('x', 1000000))",
    "jsonb_build_object('from', 'attacker', 'n', 1e100000)",
    "(repeat('[', 5000) || repeat(']', 5000))::jsonb",
)
LOCKS: Final = (
    "SELECT pg_try_advisory_lock(hashtextextended('queue_message gate of public', 0))",
    "SELECT pg_try_advisory_lock_shared(hashtextextended('queue_message gate of public', 0))",
    "SELECT pg_try_advisory_lock(n, hashtext('public')) FROM generate_series(724017720, 724017740) AS n",
    "LOCK TABLE public.queue_message IN ROW EXCLUSIVE MODE",
    "SELECT count(id) FROM public.queue_message",
    "PREPARE mine AS SELECT id FROM public.queue_message",
)
"""What may be locked, for as long as the transaction lasts."""
PATHS: Final = (
    "CREATE TEMP TABLE queue_message (id uuid, exchange text)",
    "CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'",
    "SET search_path = pg_temp, public",
    "SET search_path = public, pg_temp",
    "SET relay.notify = 'always'",
    "SET relay.traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'",
    "SET statement_timeout = '1ms'",
    "SET default_transaction_isolation = serializable",
    "SET lock_timeout = '1ms'",
    "SET timezone = 'Antarctica/Troll'",
    "SET datestyle = 'German'",
    "RESET ALL",
)
HOSTILE: Final[tuple[dict[str, Any], ...]] = (
    {"headers": {"x-death": 7, "x-delivery-count": "many", "x-received-from": ["text"]}},
    {"headers": {"x-basic-type": 7, "x-cc": 7}},
    {"userId": "somebody"},
    {"CC": ["a"] * 20},
    {"expiration": 0},
    {"mandatory": False, "priority": 255},
    {"replyTo": "amq.rabbitmq.reply-to.x"},
    {"CC": [f"key.{number}" for number in range(3000)]},
    {"headers": {"x-relay-id": "forged", "x-relay-replay-of": "forged"}},
    {"replyTo": "x", "messageId": "x"},
    {"headers": {"long": "x" * 100_000}},
    {"headers": {str(number): number for number in range(2000)}},
)
CHANNELS: Final = ("queue_message_notify", "dead_message", "queue_message_proof")
"""The queue's channels."""
