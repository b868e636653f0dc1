"""docs/cli.md against the commands."""

from __future__ import annotations

from tests.support.cli_docs import PAGE, commands, reference, written


def test_the_reference_is_that_of_the_commands() -> None:
    """Write it anew with `python -m tests.support.cli_docs` after a change of a command."""
    assert reference() == written()


def test_every_command_of_the_contract_is_there() -> None:
    """Names that users script against."""
    promised = """migrate, run, enqueue, status, show, pause, resume, limit, unlimit, replay, dead list, dead show, dead watch, dead replay,
        dead ack, key list, key skip, key park, key resume, config list, config set"""

    assert set(commands()) >= {f"relay {name}" for name in " ".join(promised.split()).split(", ")}
    assert "relay dead watch --command" in PAGE.read_text(encoding="utf-8")
