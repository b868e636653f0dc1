"""Routing key patterns, as a topic exchange of RabbitMQ reads them. No I/O."""

from __future__ import annotations


def matches(pattern: str, key: str) -> bool:
    """Whether a routing key matches: `*` stands for one word, `#` for any number of them, words end at a dot.

    A pattern also matches the key that is written like it. Never takes longer than the product of both lengths.
    """
    if pattern == key:
        return True
    # Which beginnings of the pattern match what was read of the key so far.
    steps = _words(pattern)
    reached = _skipping({0}, steps)
    for word in _words(key):
        reached = _skipping({_next(at, steps) for at in reached if at < len(steps) and steps[at] in {"*", "#", word}}, steps)
    return len(steps) in reached


def has_wildcards(pattern: str) -> bool:
    """Whether it may match more than one key."""
    return not {"*", "#"}.isdisjoint(_words(pattern))


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _next(at: int, steps: list[str]) -> int:
    return at if steps[at] == "#" else at + 1


def _skipping(reached: set[int], steps: list[str]) -> set[int]:
    """With what is reached by taking a # for no word at all."""
    for at in sorted(reached):
        end = at
        while end < len(steps) and steps[end] == "#":
            end += 1
            reached.add(end)
    return reached
