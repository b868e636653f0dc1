"""Coming from another outbox: its table keeps its name, its columns and its inserts, and each row becomes one message or stays by rule."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.applications.other_outboxes import DEBEZIUM, GO_OUTBOX, Outbox, Row, debezium_row, go_outbox_row
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

MANY = "INSERT INTO outbox.messages (id, stream, topic, payload) SELECT gen_random_uuid(), 's', 't', '' FROM generate_series(1, 3)"


def insert(seeded: Seeded, statement: str, row: Row, *, returning: str = "id") -> Any:
    """Insert as the library does; return what comes back."""
    return seeded.named(f"{statement} RETURNING {returning}", row)[0][0]


def switched(cli: Cli, seeded: Seeded, outbox: Outbox, *options: str) -> None:
    """Its table, adopted and switched."""
    seeded.run(outbox.definition)
    cli("adopt", "mirror", outbox.layout, outbox.table, *options)
    cli("adopt", "switch", outbox.table)


def queued(seeded: Seeded) -> list[dict[str, Any]]:
    """Messages in the queue, in their order."""
    columns = "id, exchange, routing_key, content, convert_from(body, 'UTF8') AS body, options, ordering_key, available_at"
    return [row for (row,) in seeded.run(f"SELECT to_jsonb(m) FROM (SELECT {columns} FROM queue_message ORDER BY xid, seq) m")]


@pytest.mark.parametrize("by", ["trigger", "view"])
def test_a_row_of_go_outbox_becomes_the_message_that_its_dispatcher_would_send(cli: Cli, seeded: Seeded, by: str) -> None:
    """Exchange and key by its rules, payload byte for byte, its id as message id; the old table keeps nothing."""
    seeded.run(GO_OUTBOX.definition)
    cli("adopt", "mirror", "go-outbox", GO_OUTBOX.table, "--by", by, "--set", "prefix=prod_")
    cli("adopt", "switch", GO_OUTBOX.table)
    row = go_outbox_row(headers='{"traceparent": "00-1"}', target='{"version": 2, "key": "42"}')
    assert row["id"] == insert(seeded, GO_OUTBOX.insert, row)
    insert(
        seeded, GO_OUTBOX.insert, go_outbox_row(target='{"exchange": "bank", "routing_key": "debit"}', headers='{"content-type": "a/b"}')
    )

    first, second = queued(seeded)
    assert (str(row["id"]), "", "prod_account.debited_v2", '{"account":42}') == (
        first["id"], first["exchange"], first["routing_key"], first["body"],
    )  # fmt: skip
    assert {"traceparent": "00-1"} == first["options"]["headers"]
    assert (str(row["id"]), "application/octet-stream") == (first["options"]["messageId"], first["options"]["contentType"])
    assert ("bank", "debit", "a/b") == (second["exchange"], second["routing_key"], second["options"]["contentType"])
    assert [(0,)] == seeded.run("SELECT count(*) FROM outbox.messages")


def test_an_event_of_debeziums_table_becomes_the_message_of_its_router(cli: Cli, seeded: Seeded) -> None:
    """The topic as routing key, the aggregate as ordering key, jsonb as content, the id as header."""
    seeded.run(DEBEZIUM.definition)
    cli("adopt", "mirror", "debezium", "outboxevent", "--exchange", "events")
    cli("adopt", "switch", "outboxevent")
    row = debezium_row()
    assert row["id"] == insert(seeded, DEBEZIUM.insert, row)

    [message] = queued(seeded)
    assert ("events", "outbox.event.order", {"id": 7}, "order:7") == tuple(
        message[name] for name in ("exchange", "routing_key", "content", "ordering_key")
    )
    assert {"messageId": str(row["id"]), "type": "OrderCreated", "headers": {"id": str(row["id"])}} == message["options"]


@pytest.mark.parametrize("by", ["trigger", "view"])
def test_what_can_be_no_message_is_archived_and_fails_no_transaction(cli: Cli, seeded: Seeded, by: str) -> None:
    """What the old table took is taken still; the row lies on the dead side, whole, with the sentence, and a neighbour goes out."""
    switched(cli, seeded, GO_OUTBOX, "--by", by)
    bad = [go_outbox_row(topic="x" * 300), go_outbox_row(target='{"version": "two"}'), go_outbox_row(headers='{"a": {"": 1}}')]
    for row in [*bad, go_outbox_row(topic="fine")]:
        assert row["id"] == insert(seeded, GO_OUTBOX.insert, row)

    assert ["fine"] == [message["routing_key"] for message in queued(seeded)]
    dead = seeded.run(
        "SELECT id, result, error_code, error_detail, content ->> 'stream', jsonb_typeof(options) FROM queue_message_dead ORDER BY seq"
    )
    assert [(row["id"], "rejected", "refused", "local", "string") for row in bad] == [(*found[:3], *found[4:]) for found in dead]
    assert "routing_key is 300 bytes long; the limit is 255 bytes" == dead[0][3]
    assert [(0,)] == seeded.run("SELECT count(*) FROM outbox.messages")


@pytest.mark.parametrize("by", ["trigger", "view"])
def test_what_the_old_table_refused_is_refused_still(cli: Cli, seeded: Seeded, by: str) -> None:
    """A null where none may be, and an id that waits already, with the same SQLSTATE."""
    switched(cli, seeded, GO_OUTBOX, "--by", by)
    with pytest.raises(psycopg.errors.NotNullViolation):
        seeded.named(GO_OUTBOX.insert, go_outbox_row(topic=None))
    row = go_outbox_row()
    insert(seeded, GO_OUTBOX.insert, row)
    with pytest.raises(psycopg.errors.UniqueViolation):
        seeded.named(GO_OUTBOX.insert, row)
    assert 1 == len(queued(seeded))


@pytest.mark.parametrize("by", ["trigger", "view"])
def test_a_login_that_may_insert_into_the_old_table_needs_nothing_else(cli: Cli, seeded: Seeded, database_url: str, by: str) -> None:
    """Neither before nor after the switch, and it may look into nothing new."""
    seeded.run(GO_OUTBOX.definition)
    with login(database_url) as app:
        who = conninfo_to_dict(app)["user"]
        seeded.run(f"GRANT USAGE ON SCHEMA outbox TO {who}; GRANT INSERT, SELECT (id) ON outbox.messages TO {who}")
        cli("adopt", "mirror", "go-outbox", GO_OUTBOX.table, "--by", by)
        with psycopg.connect(app, autocommit=True) as connection:
            connection.execute(GO_OUTBOX.insert.encode(), go_outbox_row())
            cli("adopt", "switch", GO_OUTBOX.table)
            connection.execute(f"{GO_OUTBOX.insert} RETURNING id".encode(), go_outbox_row())
            for statement in ("SELECT FROM queue_message", "SELECT payload FROM outbox.messages", "SELECT FROM queue_message_adoption"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())
    assert 1 == len(queued(seeded))


def test_on_conflict_and_counts_of_rows_are_as_they_were(cli: Cli, seeded: Seeded) -> None:
    """By a trigger: what waits in the old table conflicts, several rows of one statement count and return as they did."""
    seeded.run(GO_OUTBOX.definition)
    waiting = insert(seeded, GO_OUTBOX.insert, go_outbox_row())
    cli("adopt", "mirror", "go-outbox", GO_OUTBOX.table)
    cli("adopt", "switch", GO_OUTBOX.table)
    conflict = f"{GO_OUTBOX.insert} ON CONFLICT (id) DO NOTHING RETURNING id"
    assert [] == seeded.named(conflict, go_outbox_row(id=waiting))
    assert 1 == len(seeded.named(conflict, go_outbox_row()))
    assert 3 == len(seeded.run(f"{MANY} RETURNING id"))
    assert 4 == len(queued(seeded))


def test_rows_of_a_stream_that_goes_elsewhere_stay(cli: Cli, seeded: Seeded) -> None:
    """What is for another broker is left to the old relay, whatever it says, through a trigger and through a view."""
    for by in ("trigger", "view"):
        switched(cli, seeded, GO_OUTBOX, "--by", by, "--set", "stream=local,rabbit")
        for stream in ("local", "kafka", "rabbit"):
            insert(seeded, GO_OUTBOX.insert, go_outbox_row(stream=stream, target='{"version": "x"}' if stream == "kafka" else "{}"))
        assert [("kafka",)] == seeded.run("SELECT stream FROM outbox.messages")
        assert 2 == len(queued(seeded))
        cli("adopt", "back", GO_OUTBOX.table)
        seeded.run("DROP SCHEMA outbox CASCADE; DELETE FROM queue_message")


@pytest.mark.parametrize("by", ["trigger", "view"])
def test_waiting_rows_move_once_and_others_stay_by_rule(cli: Cli, seeded: Seeded, by: str) -> None:
    """Pending ones move, delayed ones with their time; leased and failed ones only when asked for; sent ones never."""
    seeded.run(GO_OUTBOX.definition)
    ids = [str(insert(seeded, GO_OUTBOX.insert, go_outbox_row())) for _ in range(5)]
    seeded.run("UPDATE outbox.messages SET available_at = now() + interval '1 hour' WHERE id = %s", ids[1])
    seeded.run("UPDATE outbox.messages SET status = 1, lease_token = gen_random_uuid(), lease_until = now() WHERE id = %s", ids[2])
    seeded.run("UPDATE outbox.messages SET status = 2 WHERE id = %s", ids[3])
    seeded.run("UPDATE outbox.messages SET status = 3 WHERE id = %s", ids[4])
    cli("adopt", "mirror", "go-outbox", GO_OUTBOX.table, "--by", by)
    cli("adopt", "switch", GO_OUTBOX.table)
    [listed] = cli.json("adopt", "list")
    assert (2, 1, 1) == (listed["waiting"], listed["leased"], listed["failed"])
    assert "The old relay still has 2 waiting and 1 leased" in cli.refused("adopt", "finish", GO_OUTBOX.table, code=1)

    assert "2 rows are taken over\n" == cli("adopt", "take", GO_OUTBOX.table)
    assert "0 rows are taken over\n" == cli("adopt", "take", GO_OUTBOX.table)
    assert (sorted(ids[:2]), [False, True]) == (
        sorted(m["id"] for m in queued(seeded)),
        sorted(m["available_at"] is not None for m in queued(seeded)),
    )
    assert "2 rows are taken over\n" == cli("adopt", "take", GO_OUTBOX.table, "--leased", "--failed")
    assert {*ids} - {ids[3]} == {message["id"] for message in queued(seeded)}
    assert [(ids[3],)] == seeded.run("SELECT id::text FROM outbox.messages")
    cli("adopt", "finish", GO_OUTBOX.table)


def test_what_the_old_relay_claims_meanwhile_is_not_taken(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """A row that it has locked is stepped over; its claim commits, and the row is its own."""
    switched(cli, seeded, GO_OUTBOX)
    cli("adopt", "back", GO_OUTBOX.table)
    held, free = (str(insert(seeded, GO_OUTBOX.insert, go_outbox_row())) for _ in range(2))
    cli("adopt", "mirror", "go-outbox", GO_OUTBOX.table)
    cli("adopt", "switch", GO_OUTBOX.table)
    with psycopg.connect(database_url) as old:
        lease = (
            "UPDATE outbox.messages SET status = 1, lease_token = gen_random_uuid(), lease_until = now() + interval '1 min' WHERE id = %s"
        )
        old.execute(lease, [held])
        assert "1 row is taken over\n" == cli("adopt", "take", GO_OUTBOX.table)
    assert [free] == [message["id"] for message in queued(seeded)]
    assert [(held, 1)] == seeded.run("SELECT id::text, status FROM outbox.messages")


def test_a_mirror_sends_nothing_and_tells_what_it_would(cli: Cli, seeded: Seeded) -> None:
    """Counted by route, with the reason of what would be refused; rows stay where they are, and what is rolled back is not counted."""
    seeded.run(GO_OUTBOX.definition)
    cli("adopt", "mirror", "go-outbox", GO_OUTBOX.table)
    for topic in ("a", "a", "x" * 300):
        insert(seeded, GO_OUTBOX.insert, go_outbox_row(topic=topic))
    with pytest.raises(psycopg.errors.DivisionByZero):
        seeded.run(f"{MANY.replace('3)', '1)')}; SELECT 1 / 0")

    [listed] = cli.json("adopt", "list")
    assert (3, 1, 3, "mirror") == (listed["seen"], listed["refused"], listed["waiting"], listed["phase"])
    assert [("a", 2, None), ("x" * 300, 1, "routing_key is 300 bytes long; the limit is 255 bytes")] == [
        (route["routing_key"], route["rows"], route["problem"]) for route in listed["routes"]
    ]
    assert ([], [(0,)]) == (queued(seeded), seeded.run("SELECT count(*) FROM queue_message_archive"))
    assert "the limit is 255 bytes" in cli("adopt", "list")


def test_an_event_that_is_deleted_in_its_transaction_counts_and_is_sent(cli: Cli, seeded: Seeded) -> None:
    """As object mappers do it, which compare the number of rows; without an id that is there, nothing is deleted."""
    switched(cli, seeded, DEBEZIUM, *DEBEZIUM.options("events"))
    row = debezium_row()
    delete = f"DELETE FROM outboxevent WHERE id = '{row['id']}' RETURNING id"
    seeded.run("BEGIN")
    insert(seeded, DEBEZIUM.insert, row)
    assert [(row["id"],)] == seeded.run(delete)
    seeded.run("COMMIT")
    assert [str(row["id"])] == [message["id"] for message in queued(seeded)]
    assert [] == seeded.run(delete)


@pytest.mark.parametrize(
    ("kind", "payload", "body", "content_type"),
    [
        ("jsonb", None, "", None),
        ("text", "<a/>", "<a/>", None),
        ("json", '{"a": 1e400}', '{"a": 1e400}', "application/json"),
        ("bytea", b"\x00a", "\x00a", None),
    ],
)
def test_a_payload_of_another_type_goes_out_as_its_bytes(
    cli: Cli, seeded: Seeded, kind: str, payload: object, body: str, content_type: str | None
) -> None:
    """Text, json and bytea unchanged; what was a tombstone as an empty body."""
    seeded.run(DEBEZIUM.definition.replace("jsonb", kind))
    cli("adopt", "mirror", "debezium", "outboxevent", *DEBEZIUM.options("events"))
    cli("adopt", "switch", "outboxevent")
    insert(seeded, DEBEZIUM.insert, debezium_row(payload=payload))
    [(sent, options)] = seeded.run("SELECT body, options FROM queue_message")
    assert (body.encode(), content_type) == (sent, options.get("contentType"))
