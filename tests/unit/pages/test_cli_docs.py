"""docs/cli.md against the commands."""

from __future__ import annotations

import re

from tests.support.pages.cli_docs import PAGE, commands, reference, written


def test_the_reference_is_that_of_the_commands() -> None:
    """Write it again with `python -m tests.support.pages.cli_docs` after a change of a command."""
    assert reference() == written()


def test_every_command_of_the_contract_is_there() -> None:
    """Names that users script against."""
    promised = """migrate, run, enqueue, status, show, pause, resume, limit, unlimit, replay, dead list, dead show, dead watch, dead replay,
        dead ack, key list, key skip, key park, key resume, config list, config set"""

    assert set(commands()) >= {f"relay {name}" for name in " ".join(promised.split()).split(", ")}


OTHERWISE = (
    "relay migrate", "relay run", "relay demo", "relay receive", "relay work", "relay pipeline", "relay adopt", "relay contract test",
    "relay contract asyncapi",
)  # fmt: skip
"""No one statement does what they do, or somebody else than an operator runs it."""


def test_what_an_operator_does_has_its_statement_for_psql() -> None:
    """The table at the page's end leaves out no command but those that are programs of their own."""
    table = PAGE.read_text(encoding="utf-8").partition("## The same from psql")[2]
    named: set[str] = set()
    for line in table.splitlines():
        group = ""
        for span in re.findall(r"`(relay [a-z -]+|[a-z-]+)\b", line.partition(" | ")[0]):
            group = span.strip().rpartition(" ")[0] if span.startswith("relay ") else group
            named.add(span.strip() if span.startswith("relay ") else f"{group} {span}")

    assert [] == [name for name in commands() if name not in named and not name.startswith(OTHERWISE)]
