"""`python -m tests.compatibility`: each suite on each pair of versions. It continues where it was cut short.

Words choose some of them: `18/4.3 security borders` is two suites on one pair.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from relay.errors import LocalServerError
from tests.compatibility import cells, page, servers
from tests.compatibility.servers import Had


def say(line: str) -> None:
    """For the person who waits."""
    print(line, flush=True)  # noqa: T201


def had(get: Callable[..., Had], names: Iterable[str], title: str) -> Mapping[str, Had]:
    """What can be had of these versions; why another one cannot is said, and it is `not run`."""
    found = {}
    for name in names:
        try:
            found[name] = get(name, say=say)
        except (LocalServerError, OSError) as error:
            say(f"{title} {name} is not run: {error}")
    return found


class Chosen(NamedTuple):
    """What is to be run."""

    pairs: Sequence[tuple[str, str]]
    """Of PostgreSQL and RabbitMQ, those of the newest of both and of the oldest of both first."""
    suites: Collection[str]


def chosen(words: Sequence[str]) -> Chosen:
    """Read pairs and suites, all where none is named.

    Raises:
        SystemExit: a word is neither.
    """
    every = {f"{major}/{series}": (major, series) for major, series in product(servers.POSTGRES, servers.RABBITMQ)}
    if unknown := [word for word in words if word not in every and word not in cells.SUITES]:
        sys.exit(f"{unknown[0]} is neither a pair such as 18/4.3 nor a suite: {', '.join(cells.SUITES)}")
    pairs = [every[word] for word in words if word in every] or [*every.values()]
    return Chosen(sorted(pairs, key=_distance), [word for word in words if word in cells.SUITES] or [*cells.SUITES])


def play(wanted: Chosen, postgres: Mapping[str, Had], rabbitmq: Mapping[str, Had]) -> bool:
    """Run what has not passed yet at this commit; return whether all passed."""
    good = True
    had_pairs = [(major, series) for major, series in wanted.pairs if major in postgres and series in rabbitmq]
    for (major, series), suite in product(had_pairs, wanted.suites):
        versions = {"major": major, "series": series, "postgres": postgres[major].version, "rabbitmq": rabbitmq[series].version}
        title = f"PostgreSQL {versions['postgres']}, RabbitMQ {versions['rabbitmq']}, {suite}"
        if cells.passed(suite, versions, cells.commit()):
            say(f"{title}: passed before")
            continue
        line = cells.play(suite, versions, {**postgres[major].environment, **rabbitmq[series].environment})
        good = good and line["failed"] == 0
        say(f"{title}: {said(line)}")
    return good


def said(line: cells.Line) -> str:
    """A result in words."""
    counts = ", ".join(f"{line[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
    return f"{counts}, {line['seconds']} s {' '.join(line['names'])}"


def _distance(pair: tuple[str, str]) -> float:
    """How far a pair is from the diagonal that leads from the oldest of both to the newest of both."""
    postgres, rabbitmq = [*servers.POSTGRES], [*servers.RABBITMQ]
    return abs(postgres.index(pair[0]) / (len(postgres) - 1) - rabbitmq.index(pair[1]) / (len(rabbitmq) - 1))


def main(words: Sequence[str]) -> int:
    """Run the matrix, or what the words name of it; return an exit code."""
    wanted = chosen(words)
    postgres = had(servers.postgres, dict.fromkeys(major for major, _ in wanted.pairs), "PostgreSQL")
    rabbitmq = had(servers.rabbitmq, dict.fromkeys(series for _, series in wanted.pairs), "RabbitMQ")
    try:
        return 0 if play(wanted, postgres, rabbitmq) else 1
    finally:
        page.write(cells.lines())
        say(f"compatibility: {page.PAGE.name} of docs/ is written")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
