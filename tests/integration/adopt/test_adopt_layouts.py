"""Further layouts: what faststream-outbox, MassTransit and Laravel write becomes the message that theirs would be, or stays by rule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest

from tests.support.applications.other_outboxes import (
    FASTSTREAM,
    LARAVEL,
    MASSTRANSIT,
    Outbox,
    Row,
    faststream_row,
    laravel_row,
    masstransit_row,
)
from tests.support.relays.cli import Cli, Seeded

BOTH = pytest.mark.parametrize("by", ["trigger", "view"])


def switched(cli: Cli, seeded: Seeded, outbox: Outbox, *options: str) -> None:
    """Its table, adopted and switched."""
    seeded.run(outbox.definition)
    cli("adopt", "mirror", outbox.layout, outbox.table, *options)
    cli("adopt", "switch", outbox.table)


def insert(seeded: Seeded, outbox: Outbox, row: Row) -> str:
    """Insert as the library does; return the key that comes back."""
    if outbox.before:
        seeded.named(outbox.before, row)
    return str(seeded.named(f"{outbox.insert} RETURNING {outbox.key}", row)[0][0])


def queued(seeded: Seeded) -> list[dict[str, Any]]:
    """Messages in the queue, in their order."""
    columns = "id, exchange, routing_key, convert_from(body, 'UTF8') AS body, options, available_at, expires_at"
    return [row for (row,) in seeded.run(f"SELECT to_jsonb(m) FROM (SELECT {columns} FROM queue_message ORDER BY xid, seq) m")]


def where(message: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where a message goes, and its body."""
    return tuple(message[name] for name in ("exchange", "routing_key", "body"))


@BOTH
def test_a_message_of_faststream_goes_to_the_queue_that_it_names(cli: Cli, seeded: Seeded, by: str) -> None:
    """Its bytes, headers, content type and correlation id; without headers too, and later if it says so."""
    switched(cli, seeded, FASTSTREAM, "--by", by)
    keys = [insert(seeded, FASTSTREAM, faststream_row()), insert(seeded, FASTSTREAM, faststream_row(headers=None))]
    seeded.run("INSERT INTO outbox (queue, payload, next_attempt_at) VALUES ('later', 'x', now() + interval '1 hour')")

    first, second, third = queued(seeded)
    assert ("", "orders", '{"order": 7}') == where(first) == where(second)
    assert ("application/json", "c-1", "application/json") == (
        first["options"]["contentType"], first["options"]["correlationId"], first["options"]["headers"]["content-type"],
    )  # fmt: skip
    assert keys == [message["options"]["messageId"] for message in (first, second)]
    assert (None, True) == (first["available_at"], third["available_at"] is not None)
    assert [(0,)] == seeded.run("SELECT count(*) FROM outbox")


def test_a_timer_of_faststream_stays_where_it_can_be_cancelled(cli: Cli, seeded: Seeded) -> None:
    """The same timer is set once, by ON CONFLICT, and finishing waits until it is gone."""
    switched(cli, seeded, FASTSTREAM)
    timer = """INSERT INTO outbox (queue, payload, headers, timer_id) VALUES ('q', 'x', NULL, 't1')
        ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO NOTHING RETURNING id"""
    assert (1, 0) == (len(seeded.run(timer)), len(seeded.run(timer)))
    assert [] == queued(seeded)
    assert "The old relay still has 1 waiting" in cli.refused("adopt", "finish", "outbox", code=1)
    assert "1 row is taken over\n" == cli("adopt", "take", "outbox")


@BOTH
def test_a_job_of_laravel_goes_to_the_queue_that_it_names(cli: Cli, seeded: Seeded, by: str) -> None:
    """Its payload as it is, PHP and all; a retry stays with the worker that failed, and what is reserved too."""
    switched(cli, seeded, LARAVEL, "--by", by)
    row = laravel_row(available_at=2_000_000_000)
    key = insert(seeded, LARAVEL, row)
    retry = insert(seeded, LARAVEL, laravel_row(attempts=1))

    [message] = queued(seeded)
    assert ("", "default", row["payload"]) == where(message)
    assert (key, "application/json", 1_700_000_000) == tuple(message["options"][name] for name in ("messageId", "contentType", "timestamp"))
    assert message["available_at"].startswith("2033-")
    assert [(int(retry),)] == seeded.run("SELECT id FROM jobs")
    seeded.run("UPDATE jobs SET reserved_at = 1")
    assert ("0 rows are taken over\n", "1 row is taken over\n") == (cli("adopt", "take", "jobs"), cli("adopt", "take", "jobs", "--leased"))


@BOTH
def test_a_message_of_masstransit_goes_to_the_exchange_of_its_address(cli: Cli, seeded: Seeded, by: str) -> None:
    """Envelope and content type unchanged, by any form of address that RabbitMQ has; times and transport properties too."""
    switched(cli, seeded, MASSTRANSIT, "--by", by)
    properties = json.dumps({"RMQ-RoutingKey": "eu", "RMQ-Priority": 3})
    addresses = (
        "rabbitmq://h/Shop:Placed",
        "amqps://h:5671/v%2Fh/Shop:Placed?type=direct",
        "exchange:Shop:Placed?temporary=true",
        "queue:Shop:Placed",
    )
    for address in addresses:
        insert(seeded, MASSTRANSIT, masstransit_row(DestinationAddress=address, Properties=properties, Headers='{"a": null}'))
    row = masstransit_row(ExpirationTime="2999-01-01Z", EnqueueTime="2998-01-01Z")
    assert str(row["MessageId"]) == insert(seeded, MASSTRANSIT, row)

    *sent, last = queued(seeded)
    assert [("Shop:Placed", "eu", '{"message": {"order": 7}}')] * len(addresses) == [where(message) for message in sent]
    assert ("application/vnd.masstransit+json", 3, {"a": None}) == tuple(
        sent[0]["options"][name] for name in ("contentType", "priority", "headers")
    )
    assert ("Shop:OrderPlaced", "2998", "2999", str(row["MessageId"])) == (
        last["exchange"], last["available_at"][:4], last["expires_at"][:4], last["id"],
    )  # fmt: skip
    assert [(0,)] == seeded.run('SELECT count(*) FROM "OutboxMessage"')


def test_an_address_that_is_no_exchange_is_rejected_in_one_sentence(cli: Cli, seeded: Seeded) -> None:
    """The row is archived, and the application's transaction continues."""
    switched(cli, seeded, MASSTRANSIT)
    for address in (None, "sb://bus/queue", "topic:x"):
        insert(seeded, MASSTRANSIT, masstransit_row(DestinationAddress=address))
    assert [
        ("DestinationAddress is null, and MassTransit would send it nowhere",),
        ("DestinationAddress is no exchange or queue of RabbitMQ",),
        ("DestinationAddress is no exchange or queue of RabbitMQ",),
    ] == seeded.run("SELECT error_detail FROM queue_message_dead ORDER BY seq")


def test_rows_of_masstransit_are_taken_only_when_it_has_ended(cli: Cli, seeded: Seeded) -> None:
    """Nothing shows which rows MassTransit is sending, so all count as leased. Once they are taken, the row of their state can go."""
    seeded.run(MASSTRANSIT.definition)
    row = masstransit_row()
    insert(seeded, MASSTRANSIT, row)
    cli("adopt", "mirror", MASSTRANSIT.layout, MASSTRANSIT.table)
    cli("adopt", "switch", MASSTRANSIT.table)
    assert "0 rows are taken over\n" == cli("adopt", "take", MASSTRANSIT.table)
    assert "The old relay still has 1 leased" in cli.refused("adopt", "finish", MASSTRANSIT.table, code=1)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        seeded.run('DELETE FROM "OutboxState"')
    assert "1 row is taken over\n" == cli("adopt", "take", MASSTRANSIT.table, "--leased")
    assert [str(row["MessageId"])] == [message["id"] for message in queued(seeded)]
    seeded.run('DELETE FROM "OutboxState"')
