"""Which routing keys a contract's pattern means, and what it costs to tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.contracts import patterns as module
from relay.contracts import registry
from relay.contracts.patterns import has_wildcards, matches
from relay.contracts.registry import Contract, Contracts
from tests.support.fakes.steps import steps

pytestmark = pytest.mark.ids("A37")
WORDS = ["a", "b", "order", "", "*", "#", "order*"]
TEXT = st.lists(st.sampled_from(WORDS), max_size=7).map(".".join)
NEVER = {
    "exact": lambda number: f"order.event{number}.v1",
    "ends": lambda number: f"#.event{number}",
    "begins": lambda number: f"event{number}.#",
    "inside": lambda number: f"*.#.event{number}.#.late",
    "hashes": lambda number: ".".join(["#"] * (1 + number % 60) + [f"event{number}"]),
    "turns": lambda number: "#.a" * (1 + number % 60) + f".#.event{number}",
    "stars": lambda number: "#.a" + ".*" * (number % 100) + f".event{number}",
}
"""Patterns by their number, none of which matches a key of the test."""
KEYS = {"words": ("a." * 128)[:255], "dots": "." * 255, "two": "ab." * 85, "one": "a" * 255, "stars": ("*." * 128)[:255]}
"""Keys as long as a routing key may be."""


def contracts(patterns: list[str]) -> Contracts:
    """One for each of the patterns, in mode enforce."""
    return Contracts(Contract("orders", pattern, version, "enforce", "true") for version, pattern in enumerate(patterns, 1))


def means(pattern: list[str], key: list[str]) -> bool:
    """What matching is: the definition, by trying every way."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return means(pattern[1:], key) or bool(key and means(pattern, key[1:]))
    return bool(key) and pattern[0] in {"*", key[0]} and means(pattern[1:], key[1:])


def words(text: str) -> list[str]:
    """An empty text has none."""
    return text.split(".") if text else []


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


@given(st.lists(TEXT, max_size=8), TEXT)
@example(["#.#", "#.", ".#", ".", "*.", "#.*.#", ""], ".")
def test_patterns_mean_together_what_each_means_alone(patterns: list[str], key: str) -> None:
    """As the definition has it, in the order of the contracts; empty words, hashes and dots at the ends are like others."""
    fits = [pattern for pattern in sorted({*patterns}) if means(words(pattern), words(key))]

    assert fits == [held.contract.routing_key for held in contracts([*{*patterns}]).of("orders", key)]
    assert all(matches(pattern, key) == (pattern in fits) for pattern in patterns)


@given(TEXT)
def test_a_pattern_matches_the_key_that_is_written_like_it(text: str) -> None:
    """A star and a hash are words too, where a key has them."""
    assert matches(text, text)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("pattern", NEVER.values(), ids=NEVER)
def test_a_key_costs_a_few_steps_for_each_word_however_many_contracts_there_are(pattern: Callable[[int], str], key: str) -> None:
    """Whatever patterns and key are made of: the longest key would else stop all that a relay does."""
    one, many = (contracts([pattern(number) for number in range(count)]) for count in (1, 300))

    cost = steps(lambda: many.of("orders", key), module, registry)
    assert () == tuple(many.of("orders", key))
    assert cost <= 200 + 40 * len(words(key))
    assert cost <= 2 * steps(lambda: one.of("orders", key), module, registry)


def test_a_key_that_can_match_nothing_any_more_is_not_read_on() -> None:
    """Its first word decides where no pattern begins with a hash."""
    held = contracts([f"event{number}.*.#" for number in range(300)])
    cost = {steps(lambda key=key: held.of("orders", key), module, registry) for key in ("order.a.a", "order" + ".a" * 120)}  # type: ignore[misc]
    assert 1 == len(cost)


def test_a_pattern_without_wildcards_is_told_from_one_with() -> None:
    """A star within a word is a letter like any other."""
    assert [False, True, True, False] == [has_wildcards(text) for text in ("order.paid", "order.*", "#", "order*")]
