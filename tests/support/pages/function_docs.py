"""The SQL functions of docs/functions.md, as the catalogue has them: `python -m tests.support.pages.function_docs` writes the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import psycopg

from tests.support.pages import grants
from tests.support.pages.doc_tables import put

MEANINGS: Mapping[str, Mapping[str, str]] = {
    "Messages": {
        "cancel": "Takes back all messages that wait with this id. True if none of them will be sent.",
        "known": "The id of the message that this `dedup_key` is known by, null for none.",
        "options_error": "Why these publish options can never be sent, in one sentence; null if they can.",
    },
    "Dead messages and replay": {
        "dead_acknowledge": "Acknowledges the dead message with this id; 0 if it has an answer. Refuses an id of several dead messages.",
        "dead_answer": "Acknowledges one dead message by its place. True if it had no answer yet.",
        "dead_replay": "Acknowledges a dead message by its place and replays it; null if it has an answer or `at_most` replays.",
        "replay": "Enqueues the archived message with this id again, and returns the new id.",
        "replay_at": "The same by the message's place, where several have one id.",
        "replay_many": "Replays a page of archived messages; with `dry_run` it only shows them. `refused` says why one was not replayed.",
    },
    "Erasure": {
        "erase": "Erases messages in one table of the archive. Returns how many it erased, with `dry_run` how many it would.",
        "archive_parts": "The tables of the archive: one for each day, and one for dead messages.",
        "waiting_under": "How many messages with these ordering keys are not archived yet.",
    },
    "Exchanges and ordering keys": {
        "pause": "Pauses an exchange. True if it was not paused before.",
        "resume": "Resumes an exchange. True if it was paused.",
        "limit": "Limits an exchange to so many messages a second. True if it had no limit before.",
        "unlimit": "Lifts the limit of an exchange. True if it had one.",
        "key_park": "Parks an ordering key. True if it was not parked before.",
        "key_resume": "Resumes an ordering key. True if it was parked.",
        "key_skip": "Discards the head of an ordering key, if it is `expected` and no relay has locked it. Returns its id.",
    },
    "Policy and contracts": {
        "config_set": "Changes a setting of the policy, and returns the value before.",
        "contract_add": "Adds a contract. Without a version it takes the next one.",
        "contract_mode": "Changes what becomes of contents that break a contract.",
        "contract_remove": "Removes a version of a contract, or all without a version. Returns how many.",
    },
    "Schedules": {
        "schedule_add": "Adds a schedule, or replaces it with `replace`. Returns its next tick.",
        "schedule_pause": "Pauses a schedule. True if it was not paused before.",
        "schedule_resume": "Resumes a schedule from now on. True if it was paused.",
        "schedule_remove": "Removes a schedule. True if there was one.",
        "schedule_run_now": "Inserts a schedule's message now, and returns the message's id.",
        "next_tick": "The first tick of a cron line after a time.",
    },
    "Maintenance, where no relay runs": {
        "sweep_minute": "Frees messages whose locks have expired, and archives what has expired.",
        "fold": "Moves messages under keys into the queue.",
        "run_schedules": "Inserts the messages that schedules owe.",
        "ensure_partitions": "Makes the archive's partitions ahead. Returns how many it made.",
        "retain": "Drops what is older than the retention, and names it.",
        "renotify": "Notifies again of waiting messages, where `notify` is `always`.",
    },
    "Roles": {
        "admit": "Makes a login a member of this outbox's role of a kind. The schema's owner may.",
        "dismiss": "Ends such a membership. The schema's owner may.",
        "role": "The name of this outbox's role of a kind.",
        "logins": "Logins that reach this outbox or another one, and how.",
        "crossings": "Logins that reach two outboxes, and changed roles, one sentence each.",
        "role_statements": "Statements for a login with `CREATEROLE`: this outbox's roles and their members.",
    },
    "Figures": {
        "stats_compare": "Figures of a time, and those of as long a time before.",
        "percentile": "The milliseconds that a share (0 to 1) of the counted messages did not exceed.",
        "buckets_sum": "Adds histograms of milliseconds.",
    },
}
"""What the functions for people do, without `queue_message_`; the other functions are for triggers, relays and the command line."""
PLACE = ("docs/functions.md", "functions")
"""The page, and the name of the part of it that is made from the catalogue."""
_FOUND = """
SELECT substr(proname, length('queue_message_') + 1), pg_get_function_arguments(oid), pg_get_function_result(oid)
FROM pg_proc WHERE pronamespace = %s::regnamespace
"""


def table(connection: psycopg.Connection[Any]) -> str:
    """The functions in their groups, each with its arguments, its result and who may call it."""
    known = {name: (arguments, result) for name, arguments, result in connection.execute(_FOUND, [grants.SCHEMA])}
    callers: dict[str, list[str]] = {}
    for given in sorted(grants.found(connection)):
        if given.privilege == "EXECUTE":
            kind = given.role.removeprefix("queue_message_")
            callers.setdefault(given.object.removeprefix("queue_message_").removesuffix("()"), []).append(kind)
    parts = []
    for title, meanings in MEANINGS.items():
        rows = [f"| `{_call(name, *known[name])}` | {_who(callers.get(name, []))} | {does} |" for name, does in meanings.items()]
        parts.append("\n".join([f"## {title}", "", "| function | who may call it | what it does |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _call(name: str, arguments: str, result: str) -> str:
    plain = re.sub(r"::[a-z0-9 ]+(?:\[\])?", "", arguments).replace("timestamp with time zone", "timestamptz").replace(" DEFAULT ", " = ")
    kept = ", ".join(part for part in plain.split(", ") if not part.startswith("OUT "))
    given = ", ".join(part.removeprefix("OUT ") for part in plain.split(", ") if part.startswith("OUT "))
    back = f"({given})" if given else result.replace("timestamp with time zone", "timestamptz")
    return f"queue_message_{name}({kept}) → {back}"


def _who(kinds: list[str]) -> str:
    return "everybody" if len(kinds) == len(grants.ROLES) else ", ".join(f"`{kind}`" for kind in kinds) or "the owner"


def write() -> None:
    """Put the table of a fresh schema into the page."""
    with grants.fresh_schema() as connection:
        put(*PLACE, table(connection))


if __name__ == "__main__":
    write()
