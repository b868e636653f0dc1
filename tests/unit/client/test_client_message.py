"""Messages as an application writes them: what is taken, what is refused, and in which words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ValidationError

from relay.client import JsonText, Message, MessageError, Options
from relay.client.insert import array_parameters, json_parameter
from relay.client.message import HEADERS_LIMIT, time_ordered_uuid, validate
from relay.codec.options import plan
from tests.support.poison.catalogue import POISON, Poison

LATER = datetime(2999, 1, 1, tzinfo=UTC)
BEYOND = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=5)))
BOTH = "available_at and delay are both given;"
PAYLOADS = ("content", "body")
KNOWN = {"exchange", "routing_key", "options", "content", "body"}
FIELDS = [entry for entry in POISON if set(entry.columns) <= KNOWN and entry.encodable]
HUGE = ("$string", "$bytes")
"""Directives for payloads of hundreds of megabytes, which are no matter for a unit test."""
JUDGED = [entry for entry in FIELDS if not any(mark in str(entry.columns.get(name)) for name in PAYLOADS for mark in HUGE)]


def _fields(entry: Poison) -> dict[str, Any]:
    """What an application would give; the options as Python has them."""
    claim = entry.claim("orders", "key")
    fields: dict[str, Any] = {"exchange": claim.exchange, "routing_key": claim.routing_key}
    if "content" in entry.columns:
        fields["content"] = JsonText(entry.text("content"))
    if "body" in entry.columns:
        fields["body"] = claim.payload
    if "options" in entry.columns:
        fields["options"] = json.loads(entry.text("options"), parse_int=_whole)
    return fields


def _whole(digits: str) -> int:
    """Python reads no more digits than this at once, and an application has no such number either."""
    return int(digits[:4000])


def _deep(entry: Poison) -> bool:
    """Deeper than Python can read or write, so that no application has it."""
    return "000 deep" in entry.name


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"options": {"headers": {"b": 1e308}}}, "options.headers"),
        ({"content": JsonText("1e131072")}, "more than 131072 digits"),
        ({"content": JsonText("[1E+99999999999999999999]")}, "more than 131072 digits"),
        ({"content": JsonText("[1.5e-16383]")}, "a number of 16384 decimals"),
        ({"content": JsonText("1e131071")}, "takes 8 bytes and 131079 with its numbers written out"),
        ({"available_at": BEYOND}, "available_at is outside the years 1 to 9999"),
        ({"available_at": LATER, "expires_at": LATER}, "expires_at is not after available_at"),
    ],
)  # fmt: skip
def test_what_postgresql_would_make_of_it_is_judged(fields: dict[str, Any], words: str) -> None:
    """Numbers with their digits written out and times in UTC, as they will be stored."""
    with pytest.raises(MessageError, match=re.escape(words)):
        validate({"exchange": "orders", **fields})


@pytest.mark.parametrize(
    "content", ["1e308", "[1e-400, 1E5, 2.5e3]", "[0e200000, 1e-16383]", '"1e131071"', f"[{', '.join(['1e308'] * 1000)}]"]
)
def test_numbers_that_can_be_stored_are_taken_as_they_stand(content: str) -> None:
    """Also those that no double holds."""
    assert content == validate({"exchange": "orders", "content": JsonText(content)}).content_text


@pytest.mark.parametrize("entry", [entry for entry in JUDGED if entry.outcome == "refused" and not _deep(entry)], ids=str)
@pytest.mark.ids("A38")
def test_what_the_insert_refuses_is_refused_before_any_sql(entry: Poison) -> None:
    """The client says no to each message of the catalogue that the database says no to, in one line."""
    with pytest.raises(MessageError) as caught:
        validate(_fields(entry))

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("entry", [entry for entry in JUDGED if entry.outcome == "delivered"], ids=str)
def test_what_can_be_delivered_is_taken_and_means_the_same(entry: Poison) -> None:
    """What the client would insert compiles to the same properties as what a plain INSERT would."""
    message = validate(_fields(entry))
    claim = entry.claim("orders", "key")

    assert plan((claim.options or b"{}").decode(), HEADERS_LIMIT) == plan(message.options.text(), HEADERS_LIMIT)
    assert (claim.exchange, claim.routing_key) == (message.exchange, message.routing_key)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"exchange": "x" * 300}, "exchange is 300 bytes long; the limit is 255 bytes"),
        ({"exchange": "x", "options": {"priority": 256}}, "options.priority must be a whole number from 0 to 255"),
        ({"exchange": "x", "content": float("nan")}, "content is not JSON: Out of range float values are not JSON compliant"),
        (
            {"exchange": "x", "content": ["a\0b"]},
            "content holds a NUL character, which PostgreSQL cannot store; leave it out or send it in body",
        ),
        ({"exchange": "x", "content": "\ud800"}, "content holds text that is not valid UTF-8; escape it or leave it out"),
        ({"exchange": "x", "content": JsonText('"\\ud800"')}, "content holds text that is not valid UTF-8; escape it or leave it out"),
        (
            {"exchange": "x", "content": JsonText("{")},
            "content is not JSON: Expecting property name enclosed in double quotes at character 2",
        ),
        ({"exchange": "x", "content": JsonText("NaN")}, "content is not JSON: NaN is not allowed in JSON"),
        ({"exchange": "x", "content": object()}, "content is not JSON: Unable to serialize unknown type: <class 'object'>"),
        ({"exchange": "x\0"}, "exchange holds a NUL character, which PostgreSQL cannot store; leave it out"),
        ({"exchange": "x", "ordering_key": "k" * 1025}, "ordering_key is 1025 bytes long; the limit is 1024 bytes"),
        ({"exchange": "x", "available_at": datetime(2031, 1, 1)}, "available_at: input should have timezone info"),  # noqa: DTZ001
        (
            {"exchange": "x", "available_at": LATER, "delay": timedelta(hours=1)},
            f"{BOTH} a message waits until a time or for a length of time",
        ),
        ({"exchange": "x", "delay": timedelta(seconds=-1)}, "delay is -1.15741e-05 days; it must be from 0 to 36500 days"),
        ({"exchange": "x", "delay": timedelta(days=36501)}, "delay is 36501 days; it must be from 0 to 36500 days"),
        ({"exchange": "x", "body": b"1", "content": 1}, "body and content are both given; leave content out, a message has one payload"),
        ({"exchange": "x", "body": "text"}, "body: input should be a valid bytes"),
        ({"exchange": 1, "key": 2}, "exchange: input should be a valid string; key: extra inputs are not permitted"),
    ],
)
def test_a_wrong_message_is_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    """It names the field and the limit, and never the value."""
    with pytest.raises(MessageError) as caught:
        validate(fields)

    assert sentence == str(caught.value)


@pytest.mark.parametrize(
    "given", [5, 5.0, Decimal(5), True, "5", " -5.5 ", "1e9", "20310131", b"5", timedelta(seconds=5), date(2031, 1, 31)]
)
@pytest.mark.parametrize("name", ["available_at", "expires_at"])
def test_a_time_is_no_number(name: str, given: object) -> None:
    """Five would be five seconds after 1970, which is never meant."""
    kind = "a number" if isinstance(given, str) else type(given).__name__
    hint = "; for a length of time there is delay" if name == "available_at" else ""

    with pytest.raises(MessageError) as caught:
        validate({"exchange": "orders", name: given})
    assert f"{name} must be a time with a time zone such as 2031-01-31T12:00:00Z, not {kind}{hint}" == str(caught.value)


@pytest.mark.parametrize("given", [5, 5.0, Decimal(5), True, "5", "PT5S", b"5", LATER])
def test_a_delay_is_a_timedelta(given: object) -> None:
    """A bare five could mean seconds, minutes or milliseconds."""
    with pytest.raises(MessageError) as caught:
        validate({"exchange": "orders", "delay": given})
    assert f"delay must be a timedelta such as timedelta(minutes=5), not {type(given).__name__}" == str(caught.value)


def test_a_time_may_be_text_and_a_delay_may_be_nothing() -> None:
    """Text with a time zone is a time, and no time at all is one that has come."""
    message = validate({"exchange": "orders", "available_at": "2031-01-31T12:00:00+01:00", "delay": None})

    assert datetime(2031, 1, 31, 11, tzinfo=UTC) == message.available_at
    assert timedelta() == validate({"exchange": "orders", "delay": timedelta()}).delay


def test_a_delay_reaches_the_database_as_a_length() -> None:
    """The client's clock has no part in it, and a day has 24 hours whatever the time zone of the session."""
    messages = [Message(exchange="orders", delay=timedelta(days=1, microseconds=1)), Message(exchange="orders", available_at=LATER)]

    assert ([None, LATER], [86400.000001, None]) == (array_parameters(messages)["available_ats"], array_parameters(messages)["delays"])
    assert [(None, 86400.000001), ("2999-01-01T00:00:00+00:00", None)] == [
        (entry["available_at"], entry["delay"]) for entry in json.loads(json_parameter(messages))
    ]


@pytest.mark.parametrize("given", [None, "shop", 7, [("exchange", "shop")]])
def test_what_is_no_message_at_all_is_told_by_its_type(given: Any) -> None:
    """A name in the place of a message, or one message where a list is asked for."""
    with pytest.raises(MessageError, match=f"a mapping of fields, and this is of type {type(given).__name__}$"):
        validate(given)


def test_the_model_itself_raises_what_pydantic_raises() -> None:
    """So that an application may nest it in models of its own."""
    with pytest.raises(ValidationError, match="exchange is 256 bytes long"):
        Message(exchange="x" * 256)


class _Paid(BaseModel):
    invoice: int
    on: date
    total: Decimal


def test_content_may_be_a_model_or_hold_dates_and_uuids() -> None:
    """It is written as pydantic writes JSON."""
    paid = _Paid(invoice=7, on=date(2031, 1, 31), total=Decimal("1.10"))

    assert '{"invoice":7,"on":"2031-01-31","total":"1.10"}' == Message(exchange="x", content=paid).content_text
    assert f'["{UUID(int=7)}"]' == Message(exchange="x", content=[UUID(int=7)]).content_text


def test_json_text_keeps_its_digits() -> None:
    """A number is not taken through a float."""
    assert (
        '{"total": 1.10, "n": 123456789012345678901234567890}'
        == Message(exchange="x", content=JsonText('{"total": 1.10, "n": 123456789012345678901234567890}')).content_text
    )


def test_content_is_taken_as_it_is_when_the_message_is_made() -> None:
    """A list that changes afterwards changes nothing."""
    content = [1]
    message = Message(exchange="x", content=content)
    content.append(2)

    assert "[1]" == message.content_text


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    """Only a real NUL is refused."""
    assert '"\\\\u0000"' == Message(exchange="x", content="\\u0000").content_text


def test_options_are_stored_by_their_snake_case_names_and_only_if_given() -> None:
    """Both spellings lead to the same text; null means not given."""
    by_name = Options(content_type="a/b", priority=3, cc=None, headers={"n": None})
    by_alias = Options.model_validate({"contentType": "a/b", "priority": 3, "CC": None, "headers": {"n": None}})

    assert '{"content_type":"a/b","headers":{"n":null},"priority":3}' == by_name.text() == by_alias.text()
    assert "{}" == Options().text()


@pytest.mark.parametrize(("given", "stored"), [(True, 2), ("2", 2), (2.0, 2), (1, 1), (1.0, 1)])
def test_delivery_mode_true_means_persistent(given: object, stored: int) -> None:
    """As in the relay, where amqplib's spellings count."""
    assert stored == Options.model_validate({"deliveryMode": given}).delivery_mode


def test_ids_are_ordered_by_time_and_say_so() -> None:
    """Version 7, variant 10, the first 48 bits the milliseconds since 1970."""
    before = int(datetime.now(UTC).timestamp() * 1000)
    made = [time_ordered_uuid() for _ in range(100)]

    assert 100 == len(set(made))
    assert {(7, "specified in RFC 4122")} == {(id_.version, id_.variant) for id_ in made}
    assert before <= made[0].int >> 80 <= before + 10_000


def test_importing_the_client_imports_no_server_and_no_broker_library() -> None:
    """An application that enqueues pays for pydantic and psycopg, and for nothing else."""
    heavy = ["aio_pika", "aiormq", "pamqp", "uvicorn", "starlette", "structlog", "prometheus_client", "typer", "rich", "pydantic_settings"]
    code = f"import sys, relay.client; print([name for name in {heavy} if name in sys.modules])"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert "[]" == printed.strip()
