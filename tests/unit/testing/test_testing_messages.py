"""What a test of an application may ask of messages, without a database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from relay.testing.clock import Clock
from relay.testing.messages import Messages


@pytest.mark.parametrize("ask", [Messages.matching, Messages.assert_has, Messages.assert_lacks])
def test_a_field_that_no_message_has_is_told_of_where_there_is_no_message_too(ask: Callable[..., Any]) -> None:
    """Otherwise a slip of the pen is a test that passes."""
    none = Messages([], title="This transaction has enqueued", hint="")
    with pytest.raises(TypeError, match=r"^A message has no exchnge; it has exchange, "):
        ask(none, exchnge="shop")


def test_time_goes_on_by_a_timedelta() -> None:
    """A number could be seconds or hours."""
    clock = Clock(Mock(), running=Mock(), before=Mock(), passed=Mock())
    with pytest.raises(TypeError, match=r"^Time advances by a timedelta, not by int: "):
        clock.advance(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"does not go back"):
        clock.advance(timedelta(seconds=-1))
