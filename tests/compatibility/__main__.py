"""`python -m tests.compatibility`: each suite on each pair of versions; goes on where it was cut short."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import product

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


def play(postgres: Mapping[str, Had], rabbitmq: Mapping[str, Had]) -> bool:
    """Run what has not passed yet at this commit, the newest of both and the oldest of both first; return whether all passed."""
    pairs = sorted(product(postgres, rabbitmq), key=lambda pair: _distance(pair, list(postgres), list(rabbitmq)))
    good = True
    for (major, series), suite in product(pairs, cells.SUITES):
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


def _distance(pair: tuple[str, str], postgres: list[str], rabbitmq: list[str]) -> float:
    """How far a pair is from the diagonal that leads from the oldest of both to the newest of both."""
    across, down = postgres.index(pair[0]) / max(len(postgres) - 1, 1), rabbitmq.index(pair[1]) / max(len(rabbitmq) - 1, 1)
    return abs(across - down)


def main() -> int:
    """Run the matrix; return an exit code."""
    postgres = had(servers.postgres, servers.POSTGRES, "PostgreSQL")
    rabbitmq = had(servers.rabbitmq, servers.RABBITMQ, "RabbitMQ")
    try:
        return 0 if play(postgres, rabbitmq) else 1
    finally:
        page.write(cells.lines())
        say(f"compatibility: {page.PAGE.name} of docs/ is written")


if __name__ == "__main__":
    sys.exit(main())
