"""Whose connection is served next."""

from __future__ import annotations

import pytest

from relay.observability.http_turns import Turns


def order(turns: Turns[str]) -> list[str]:
    """All that wait, in the order in which they are served."""
    served = []
    while (connection := turns.next()) is not None:
        served.append(connection)
    return served


def test_clients_take_turns_and_each_has_its_oldest_first() -> None:
    """A client that opens many connections delays another one by one connection at most."""
    turns: Turns[str] = Turns(9)
    for address, connection in [("10.0.0.1", "a1"), ("10.0.0.1", "a2"), ("10.0.0.1", "a3"), ("10.0.0.2", "b1"), ("10.0.0.3", "c1")]:
        assert turns.add(address, connection) is None

    assert ["a1", "b1", "c1", "a2", "a3"] == order(turns)
    assert not turns


def test_a_client_that_has_had_a_turn_waits_for_the_others() -> None:
    """Also if its next connection comes first."""
    turns: Turns[str] = Turns(9)
    turns.add("10.0.0.1", "a1")
    turns.add("10.0.0.1", "a2")
    assert "a1" == turns.next()
    turns.add("10.0.0.2", "b1")
    turns.add("10.0.0.1", "a3")

    assert ["a2", "b1", "a3"] == order(turns)


def test_where_too_many_wait_the_client_with_most_loses_its_oldest() -> None:
    """Clients with few connections lose none."""
    turns: Turns[str] = Turns(3)
    for connection in ("a1", "a2", "a3"):
        turns.add("10.0.0.1", connection)

    assert ["a1", "a2"] == [turns.add("10.0.0.2", "b1"), turns.add("10.0.0.1", "a4")]
    assert ["a3", "b1", "a4"] == order(turns)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("10.0.0.1", "10.0.0.2", False),
    ],
)
def test_addresses_that_a_host_chooses_at_will_are_one_client(one: str, other: str, same: bool) -> None:
    """The last 64 bits of an IPv6 address."""
    turns: Turns[str] = Turns(9)
    for address, connection in ((one, "a1"), (one, "a2"), (other, "b1")):
        turns.add(address, connection)

    assert (["a1", "a2", "b1"] if same else ["a1", "b1", "a2"]) == order(turns)
