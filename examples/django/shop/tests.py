"""What `pay` announces, and that it arrives, with Django's own test runner: see ../../../docs/testing.md."""

from pathlib import Path

from django.db import connection
from django.test import TestCase, TransactionTestCase
from psycopg.conninfo import make_conninfo

from relay.testing.outbox import Outbox
from shop.payments import RefusedError, pay

SCHEMA = (Path(__file__).parents[2] / "schema.sql").read_text(encoding="utf-8")


def outbox() -> Outbox:
    """The outbox of the database that Django has made for the tests."""
    database = connection.settings_dict
    return Outbox(make_conninfo(dbname=database["NAME"], **database["OPTIONS"]))


class AnnouncementTest(TestCase):
    """Each test in a transaction that is rolled back."""

    def setUp(self) -> None:
        """Make what a project of its own would have migrated."""
        self.outbox = self.enterContext(outbox())
        with connection.cursor() as cursor:
            cursor.execute(SCHEMA)

    def test_a_payment_announces_its_invoice(self) -> None:
        """In the transaction that writes it."""
        message_id = pay(120)
        message = self.outbox.assert_enqueued(connection, exchange="shop", routing_key="order.paid", content={"total": 120})
        assert message_id == message.id

    def test_a_payment_does_not_announce_what_the_bank_refuses(self) -> None:
        """The message goes with the invoice."""
        with self.assertRaises(RefusedError):  # noqa: PT027 - the runner is Django's
            pay(5000)
        self.outbox.assert_not_enqueued(connection)


class DeliveryTest(TransactionTestCase):
    """What is committed."""

    def test_the_announcement_of_a_payment_arrives(self) -> None:
        """With the relay that runs in production, and a broker in memory."""
        with connection.cursor() as cursor:
            cursor.execute(SCHEMA)
        with outbox() as box, box.relay() as broker:
            broker.declare_exchange("shop")
            broker.bind("orders", "shop", "order.*")
            message_id = pay(120)
            broker.drained()

            [delivered] = broker.queue("orders")
            assert (str(message_id), 120) == (delivered.message_id, delivered.content["total"])
