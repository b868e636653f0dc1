"""Which routing keys a contract's pattern means."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.contracts.patterns import has_wildcards, matches

pytestmark = pytest.mark.ids("A37")
WORD = st.sampled_from(["a", "b", "order", ""])
STEP = st.one_of(WORD, st.sampled_from(["*", "#"]))


@pytest.mark.parametrize(
    ("pattern", "key", "fits"),
    [
        ("order.paid", "order.paid", True),
        ("order.paid", "order.paid.late", False),
        ("order.*", "order.paid", True),
        ("order.*", "order", False),
        ("order.*", "order.paid.late", False),
        ("order.#", "order", True),
        ("order.#", "order.paid.late", True),
        ("#", "", True),
        ("#", "any.thing", True),
        ("*", "", False),
        ("", "", True),
        ("", "a", False),
        ("#.late", "late", True),
        ("#.late", "order.paid.late", True),
        ("a.#.#.b", "a.b", True),
        ("order*", "orders", False),
        ("*.*", "a..b", False),
        ("a.*.b", "a..b", True),
    ],
)
def test_words_and_wildcards_mean_what_they_mean_to_a_topic_exchange(pattern: str, key: str, fits: bool) -> None:
    """A star is one word, a hash any number of them, and part of a word is none."""
    assert fits == matches(pattern, key)


@given(st.lists(STEP, max_size=6), st.lists(WORD, min_size=1, max_size=6))
def test_it_agrees_with_a_regular_expression(steps: list[str], words: list[str]) -> None:
    """One that is made word by word, over words that end with a dot each."""
    pattern, key = ".".join(steps), ".".join(words)
    parts = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    oracle = "".join(parts.get(step, re.escape(step) + r"\.") for step in (pattern.split(".") if pattern else []))

    assert matches(pattern, key) == (pattern == key or re.fullmatch(oracle, f"{key}." if key else "") is not None)


def test_a_hostile_pattern_takes_no_time() -> None:
    """255 bytes of hashes against a key as long, where trying every way would never end."""
    assert not matches(".".join(["#"] * 100 + ["x"]), ".".join(["a"] * 127))


def test_a_pattern_without_wildcards_is_told_from_one_with() -> None:
    """A star within a word is a letter like any other."""
    assert [False, True, True, False] == [has_wildcards(text) for text in ("order.paid", "order.*", "#", "order*")]
