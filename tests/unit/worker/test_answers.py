"""What becomes of what a handler returned, before the database sees it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.worker.outcomes import Reject, TransientAttemptError, location
from relay.worker.response import answer_of

PLENTY = 1 << 20
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(1 << 60), 1 << 60) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), ANYTHING | st.binary(), max_size=4))
def test_whatever_is_returned_is_json_that_postgresql_takes(returned: dict[str, Any]) -> None:
    """No NUL, no half of a surrogate pair, no NaN; bytes as bytea is written, and named."""
    if any("\0" in name or not name.isprintable() for name in returned):
        return
    answer = answer_of(returned, max_bytes=PLENTY)
    assert answer.text is not None
    found = json.loads(answer.text, parse_constant=pytest.fail)
    assert returned.keys() == found.keys()
    assert answer.binary == [name for name, value in returned.items() if isinstance(value, bytes)]
    for name in answer.binary:
        assert returned[name] == bytes.fromhex(found[name].removeprefix("\\x"))
    assert "\\u0000" not in answer.text.replace("\\\\", "")
    answer.text.encode()


def test_values_are_written_as_their_columns_read_them() -> None:
    """Texts, numbers, times, ids; what a text cannot hold becomes U+FFFD, also within a value of its own."""
    values = {
        "text": "a\0b\ud800c", "deep": [{"x": "\0"}], "at": datetime(2031, 1, 1, tzinfo=UTC), "id": UUID(int=1),
        "sum": Decimal("1.50"), "nan": float("nan"), "none": None,
    }  # fmt: skip
    found = json.loads(answer_of(values, max_bytes=PLENTY).text or "")
    assert {
        "text": "a\ufffdb\ufffdc", "deep": [{"x": "\ufffd"}], "at": "2031-01-01T00:00:00Z", "id": str(UUID(int=1)),
        "sum": "1.50", "nan": "nan", "none": None,
    } == found  # fmt: skip


@pytest.mark.parametrize("returned", [None, 5, "text", [{"a": 1}]])
def test_what_is_no_mapping_is_no_answer(returned: object) -> None:
    """The database says what that means for the message."""
    assert answer_of(returned, max_bytes=PLENTY).text is None


@pytest.mark.parametrize("returned", [{"a": "x" * 100}, {"a": b"x" * 100}, {"a": b"x" * 50, "b": "x" * 50}])
def test_an_answer_has_a_limit(returned: dict[str, Any]) -> None:
    """Of bytes, all values together; bytes count once, however they are written."""
    assert answer_of(returned, max_bytes=150).text
    with pytest.raises(Reject, match="more than max_body_bytes"):
        answer_of(returned, max_bytes=99)


def test_the_place_of_an_exception_is_the_handlers_own() -> None:
    """The innermost frame of its package, though a library raised it; of all where there is none."""
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    assert location(caught.value, "tests").startswith("tests.unit.worker.test_answers:")
    assert location(caught.value, "elsewhere").startswith("json.decoder:")
    assert "" == location(TransientAttemptError(), "tests")
