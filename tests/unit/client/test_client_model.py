"""Pydantic models that say where they go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import ConfigDict, Field, computed_field

from relay.client import MessageError, Options, OutboxModel
from relay.client.prepare import Trace, prepare

TIME = datetime(2031, 1, 31, 12, tzinfo=UTC)


class InvoicePaid(
    OutboxModel,
    exchange="billing",
    routing_key="invoice.{country}.paid",
    options=Options(type="invoice.paid", headers={"version": 1}),
    ordering_key="customer",
):
    """The example of the documentation."""

    invoice: int
    country: str = "at"
    customer: str | None = None
    total: Decimal = Decimal("1.10")
    at: datetime = TIME


def test_a_model_is_a_message() -> None:
    """Everything that its class says, and its own JSON."""
    message = prepare(InvoicePaid(invoice=7, customer="c-7"), Trace(), None)

    assert ("billing", "invoice.at.paid", "c-7") == (message.exchange, message.routing_key, message.ordering_key)
    assert '{"invoice":7,"country":"at","customer":"c-7","total":"1.10","at":"2031-01-31T12:00:00Z"}' == message.content_text
    assert {"type": "invoice.paid", "headers": {"version": 1}} == message.options.given()


def test_without_a_value_there_is_no_order() -> None:
    """None in the field that orders."""
    assert InvoicePaid(invoice=7).to_message().ordering_key is None


def test_a_call_may_say_all_of_it_anew() -> None:
    """Option by option and header by header; the class stays as it is."""
    given: dict[str, Any] = {
        "exchange": "", "routing_key": "queue", "ordering_key": "k", "available_at": TIME, "expires_at": TIME.replace(year=2032),
        "id": UUID(int=7),
    }  # fmt: skip
    message = InvoicePaid(invoice=7, customer="c").to_message(**given, options=Options(priority=3, headers={"tenant": "a"}))

    assert given == {name: getattr(message, name) for name in given}
    assert {"type": "invoice.paid", "priority": 3, "headers": {"version": 1, "tenant": "a"}} == message.options.given()
    assert "billing" == InvoicePaid(invoice=8).to_message().exchange
    assert timedelta(minutes=5) == InvoicePaid(invoice=8).to_message(delay=timedelta(minutes=5)).delay


def test_subclasses_inherit_what_they_do_not_say_anew() -> None:
    """A base names the exchange, its children the rest."""

    class Billing(OutboxModel, exchange="billing", options=Options(app_id="shop")):
        number: int

    class Reminder(Billing, routing_key="reminder.{number:03d}"):
        pass

    class Urgent(Reminder, options=Options(priority=9), by_alias=True):
        number: int = Field(serialization_alias="no")

    assert ("billing", "reminder.007", {"app_id": "shop"}) == _said(Reminder(number=7))
    assert ("billing", "reminder.008", {"priority": 9}) == _said(Urgent(number=8))
    assert ('{"no":8}', '{"number":7}') == (Urgent(number=8).to_message().content_text, Reminder(number=7).to_message().content_text)


def _said(model: OutboxModel) -> tuple[str, str, dict[str, Any]]:
    message = model.to_message()
    return message.exchange, message.routing_key, message.options.given()


def test_aliases_are_those_of_the_models_own_configuration() -> None:
    """Unless the class says otherwise."""

    class Camel(OutboxModel, exchange="e"):
        model_config = ConfigDict(serialize_by_alias=True)
        order_id: int = Field(alias="orderId")

    class Snake(Camel, by_alias=False):
        pass

    assert '{"orderId":7}' == Camel(orderId=7).to_message().content_text
    assert '{"order_id":7}' == Snake(orderId=7).to_message().content_text


def test_methods_compute_what_a_template_cannot() -> None:
    """Of the routing key and the ordering key; computed fields serve in templates, too."""

    class Order(OutboxModel, exchange="e"):
        total: int

        def outbox_routing_key(self) -> str:
            return "order.large" if self.total > 100 else "order.small"

        def outbox_ordering_key(self) -> str | None:
            return f"total-{self.total}"

    class Sized(OutboxModel, exchange="e", routing_key="order.{size}", ordering_key="size"):
        total: int

        @computed_field  # type: ignore[prop-decorator]
        @property
        def size(self) -> str:
            return "large" if self.total > 100 else "small"

    assert ("order.large", "total-101") == (Order(total=101).to_message().routing_key, Order(total=101).to_message().ordering_key)
    assert ("order.small", "small") == (Sized(total=1).to_message().routing_key, Sized(total=1).to_message().ordering_key)


@pytest.mark.parametrize("said", [{"routing_key": "a.{nobody}"}, {"ordering_key": "nobody"}, {"routing_key": "a.{number.real}"}])
def test_a_name_that_is_no_field_is_refused_when_the_class_is_made(said: dict[str, str]) -> None:
    """Not when the first message is."""
    with pytest.raises(TypeError, match="Wrong has no field"):
        type("Wrong", (OutboxModel,), {"__annotations__": {"number": int}, "__module__": __name__}, **said)


@pytest.mark.parametrize("said", [{"exchange": 7}, {"options": {"priority": 3}}, {"by_alias": "yes"}, {"exchnage": "e"}])
def test_what_a_class_may_not_say_is_refused_when_it_is_made(said: dict[str, object]) -> None:
    """An unknown name is refused too."""
    with pytest.raises(TypeError):
        type("Wrong", (OutboxModel,), {"__module__": __name__}, **said)


def test_values_are_no_templates() -> None:
    """Braces in a field stay what they are."""
    assert "invoice.{invoice}.paid" == InvoicePaid(invoice=1, country="{invoice}").to_message().routing_key


def test_what_can_never_be_sent_is_one_sentence() -> None:
    """A key that is too long, a value that is no JSON, a class without an exchange."""

    class Homeless(OutboxModel):
        value: Any = None

    class Any_(Homeless, exchange="e"):  # noqa: N801 - next to the type
        pass

    with pytest.raises(MessageError, match=r"^routing_key is 313 bytes long; the limit is 255 bytes$"):
        prepare(InvoicePaid(invoice=7, country="x" * 300), Trace(), None)
    with pytest.raises(MessageError, match=r"^Homeless names no exchange: say class Homeless\(OutboxModel, exchange=...\)$"):
        prepare(Homeless(), Trace(), None)
    with pytest.raises(MessageError, match=r"^content is not JSON"):
        prepare(Any_(value=object()), Trace(), None)
