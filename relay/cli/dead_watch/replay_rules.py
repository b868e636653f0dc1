"""Rules by which `relay dead watch` replays.

A rule selects dead messages. It also says after what time they are replayed, and how often along their lineage.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import typer

from relay.cli.common.support import LENGTH, SECONDS
from relay.message import Result

_KEYS = ("code", "exchange", "routing-key", "result", "after", "at-most")
_MOST_DIGITS = 3
DEAD_RESULTS = tuple(each.value for each in (Result.REJECTED, Result.FAILED, Result.LOCK_EXPIRED))


@dataclass(frozen=True)
class Rule:
    """A rule; a dead message must match every condition that is not None."""

    text: str
    """The rule as it was given."""
    code: str | None
    exchange: str | None
    routing_key: str | None
    result: str | None
    after: timedelta
    at_most: int

    def matches(self, dead: dict[str, Any]) -> bool:
        """Whether a dead message matches this rule."""
        wanted = ((self.code, "error_code"), (self.exchange, "exchange"), (self.result, "result"))
        return all(value in {None, dead[name]} for value, name in wanted) and (
            self.routing_key is None or re.fullmatch(_pattern(self.routing_key), dead["routing_key"], re.DOTALL) is not None
        )


def _pattern(key: str) -> str:
    """The regular expression for a routing key with stars.

    The atomic groups prevent backtracking. With four stars it could take hours on a long key, and producers choose the keys.
    """
    first, *others = map(re.escape, key.split("*"))
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>.*?{part})" for part in middle) + f".*{last}"


def parse_rule(text: str) -> Rule:
    """The rule in a text such as `code=unroutable,exchange=orders,after=5m,at-most=3`; a value with a comma is quoted.

    Raises:
        typer.BadParameter: the text is not a rule.
    """
    given = _pairs(text)
    if not given.keys() - {"after", "at-most"}:
        raise typer.BadParameter("--replay must say what: at least one of code, exchange, routing-key, result.")
    if given.get("code") == "":
        raise typer.BadParameter("--replay: code must be an error code such as unroutable.")
    if "result" in given and given["result"] not in DEAD_RESULTS:
        raise typer.BadParameter(f"--replay: result must be one of {', '.join(DEAD_RESULTS)}.")
    after, most = LENGTH.fullmatch(given.get("after", "1m")), given.get("at-most", "1")
    if after is None:
        raise typer.BadParameter("--replay: after must be a length such as 90s, 15m, 2h, 7d.")
    if not (most.isascii() and most.isdigit() and 0 < len(most) <= _MOST_DIGITS and int(most)):
        raise typer.BadParameter("--replay: at-most must be a whole number from 1 to 999.")
    wait = timedelta(seconds=int(after[1]) * SECONDS[after[2]])
    return Rule(text, given.get("code"), given.get("exchange"), given.get("routing-key"), given.get("result"), wait, int(most))


def _pairs(text: str) -> dict[str, str]:
    split = shlex.shlex(text, posix=True)
    split.whitespace, split.whitespace_split, split.commenters, split.escape = ",", True, "", ""
    try:
        parts = [part.partition("=") for part in split]
    except ValueError as error:
        raise typer.BadParameter(f"--replay cannot be read: {error}.") from None
    for key, equals, _ in parts:
        if key.strip() in _KEYS and not equals:
            raise typer.BadParameter(f"--replay: {key.strip()} has no value; write {key.strip()}=VALUE.")
        if key.strip() not in _KEYS:
            raise typer.BadParameter(
                f"--replay has no key {key!r}: there are {', '.join(_KEYS)}, as in code=unroutable,after=5m,at-most=3."
            )
    given = {key.strip(): value for key, _, value in parts}
    if len(given) < len(parts):
        raise typer.BadParameter("--replay names a key twice; give --replay several times for several rules.")
    return given
