"""Paying an invoice and announcing it, in one transaction."""

from uuid import UUID

from django.db import transaction

from relay.client import Message
from relay.integrations.django import enqueue
from shop.models import Invoice


class RefusedError(Exception):
    """The bank does not pay."""


@transaction.atomic
def pay(total: int) -> UUID:
    """Write an invoice and the message about it, both or neither; return the message's id."""
    invoice = Invoice.objects.create(total=total)
    message_id = enqueue(Message(exchange="shop", routing_key="order.paid", content={"invoice": invoice.pk, "total": total}))
    charge(total)
    return message_id


def charge(total: int) -> None:
    """Ask the bank."""
    if total > 1000:
        raise RefusedError
