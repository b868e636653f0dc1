"""Which messages go over the channel of their exchange, and which apart."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import pytest

from relay.amqp.publishing.refused_keys import RefusedKeys
from relay.amqp.publishing.routes import LARGE, Route, Way, by_route
from relay.message import Claim
from tests.support.broker.publishing import batch, claim

ORDINARY: dict[str, dict[str, Any]] = {
    "plain": {},
    "options without a user": {"options": '{"priority": 3}'},
    "the relay's own name": {"options": '{"userId": "me", "user_id": "me"}'},
    "a name that is null": {"options": '{"userId": null}'},
    "a user in a header": {"options": '{"headers": {"userId": "you"}}'},
    "options that cannot be read": {"options": '{"userId": '},
    "options that are no object": {"options": '["userId"]'},
    "options nested too deep": {"options": '{"userId": ' + "[" * 100_000},
    "a payload at the limit": {"payload": b"x" * LARGE},
}
APART: dict[str, dict[str, Any]] = {
    "another name": {"options": '{"userId": "you"}'},
    "another name in the other spelling": {"options": '{"user_id": "you"}'},
    "a name that is no text": {"options": '{"userId": 7}'},
    "a large payload": {"payload": b"x" * (LARGE + 1)},
    "a second attempt": {"attempts": 2},
}


@pytest.mark.parametrize("fields", ORDINARY.values(), ids=ORDINARY)
def test_an_ordinary_message_stays_with_the_others_of_its_exchange(fields: dict[str, Any]) -> None:
    """Nothing in it is known to close a channel."""
    assert {("x", Way.SHARED): [0, 1]} == routes([claim("x"), claim("x", **fields)])


@pytest.mark.parametrize("fields", APART.values(), ids=APART)
def test_what_may_foreseeably_close_its_channel_goes_apart(fields: dict[str, Any]) -> None:
    """Each kind, and the others of the batch stay where they were."""
    assert {("x", Way.SHARED): [0, 2], ("x", Way.APART): [1]} == routes([claim("x"), claim("x", **fields), claim("x")])


def test_each_exchange_has_its_two_ways() -> None:
    """In the order of the batch on each of them."""
    claims = [claim("x"), claim("y", attempts=2), claim("y"), claim("x", attempts=3), claim("y", attempts=5)]
    assert {("x", Way.SHARED): [0], ("y", Way.APART): [1, 4], ("y", Way.SHARED): [2], ("x", Way.APART): [3]} == routes(claims)


def test_where_the_login_is_a_certificate_each_name_goes_apart() -> None:
    """Which name the broker reads from it is not known here."""
    assert {("x", Way.APART): [0]} == routes([claim("x", options='{"userId": "me"}')], user=None)


def test_what_may_have_ended_a_connection_goes_alone() -> None:
    """Once it comes back; a new message under its id is none of that."""
    claims = [claim("x"), claim("x", id="a", attempts=2), claim("x", id="b", attempts=2), claim("x", id="a")]
    assert {("x", Way.SHARED): [0, 3], ("x", Way.ALONE): [1], ("x", Way.APART): [2]} == routes(claims, blamed={"a"})


def routes(claims: list[Claim], user: str | None = "me", blamed: Container[str] = ()) -> dict[Route, list[int]]:
    """Routes with the places as lists."""
    return {route: [*places] for route, places in by_route(batch(claims), user, RefusedKeys(lambda: 0.0), None, blamed).items()}
