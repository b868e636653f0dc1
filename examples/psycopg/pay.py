"""Pay an invoice and announce it in one transaction, with psycopg; see README.md."""

import os
from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg

from relay.client import Message, enqueue


class RefusedError(Exception):
    """The bank does not pay."""


def pay(connection: psycopg.Connection[Any], total: int) -> UUID:
    """Write an invoice and the message about it, both or neither; return the message's id."""
    with connection.transaction():
        [invoice] = connection.execute("INSERT INTO invoice (total) VALUES (%s) RETURNING id", (total,)).fetchone() or []
        message = Message(exchange="shop", routing_key="order.paid", content={"invoice": invoice, "total": total})
        message_id = enqueue(connection, message)
        charge(total)
    return message_id


def charge(total: int) -> None:
    """Ask the bank."""
    if total > 1000:
        raise RefusedError


if __name__ == "__main__":
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        print(pay(connection, 120))
        # The bank refuses this one: neither the invoice nor its message is there.
        with suppress(RefusedError):
            pay(connection, 5000)
