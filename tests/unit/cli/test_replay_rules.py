"""Routing keys with stars in the rules of `relay dead watch`."""

from __future__ import annotations

from datetime import UTC, datetime
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.cli.dead_watch.replay_rules import parse_rule
from relay.cli.dead_watch.replayer import Replayer


def matches(pattern: str, key: str) -> bool:
    """Whether a rule for that routing key takes a dead message of this one."""
    return parse_rule(f"routing-key={pattern}").matches({"error_code": "x", "exchange": "e", "result": "failed", "routing_key": key})


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=10))
def test_a_star_stands_for_any_text(pattern: str, key: str) -> None:
    """As in a shell."""
    assert fnmatchcase(key, pattern) == matches(pattern, key)


@pytest.mark.timeout(20)
def test_many_stars_and_a_long_key_come_to_an_end() -> None:
    """Any login that inserts chooses the key: it must not keep other deaths from being reported."""
    assert not matches("*.*.*.*.*.*.*.failed", "." * 255)
    assert matches("*.*.*.*.*.*.*.failed", "." * 248 + "failed")


def test_a_message_that_died_in_the_last_hour_of_the_calendar_waits() -> None:
    """Such a time was written past the triggers, and does not end the watch."""
    rule = parse_rule("code=x,after=2h")
    dead = {"error_code": "x", "exchange": "e", "result": "failed", "routing_key": "k", "archived_at": datetime.max.replace(tzinfo=UTC)}

    assert Replayer(rule, earlier=[], wanted={}, ready=lambda _: True)._due(dead) > datetime.max.replace(tzinfo=UTC).timestamp()
