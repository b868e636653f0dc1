"""What both programs have in common: the model, the database, the bank."""

import os

from sqlalchemy.engine import URL, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from relay.client import Message


class Base(DeclarativeBase):
    """Models of this application."""


class Invoice(Base):
    """What a customer owes."""

    __tablename__ = "invoice"

    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]


class RefusedError(Exception):
    """The bank does not pay."""


def database_url() -> URL:
    """DATABASE_URL for the driver psycopg, which does both: sync and async."""
    return make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg")


def paid(invoice: Invoice) -> Message:
    """What the others are told."""
    return Message(exchange="shop", routing_key="order.paid", content={"invoice": invoice.id, "total": invoice.total})


def charge(invoice: Invoice) -> None:
    """Ask the bank."""
    if invoice.total > 1000:
        raise RefusedError
