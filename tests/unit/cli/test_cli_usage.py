"""Help and usage errors of the commands, where no server is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from relay.cli.common.help import ID
from relay.cli.main import app

KEYS = "code, exchange, routing-key, result, after, at-most, as in code=unroutable,after=5m,at-most=3"
NO_USER = "The URL must hold no user and no password: if headers can be given, send them in a header."


def _commands(path: list[str], command: Any) -> Iterator[list[str]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands([*path, name], inner)


@pytest.mark.parametrize("path", list(_commands([], typer.main.get_command(app))), ids=" ".join)
def test_a_flag_shows_no_type_in_the_help(path: list[str]) -> None:
    """It takes no value; that of `--help`, which the library declares, neither."""
    shown = CliRunner().invoke(app, [*path, "--help"]).stdout

    assert "--help" in shown
    assert "bool" not in shown.lower()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("show x", f"ID must be {ID}, with @XID/SEQ if other messages have the same id. See `relay show --help`."),
        ("cancel x", "ID must be an id such as 019a8f4e-0000-7000-8000-000000000000. See `relay cancel --help`."),
        ("dead ack x", f"ID must be {ID}, with @XID/SEQ if other messages have the same id. See `relay dead ack --help`."),
        ("pipeline replay --id x", "--id must be an id such as 019a8f4e-0000-7000-8000-000000000000. See `relay pipeline replay --help`."),
        ("dead list --limit x", "--limit must be a whole number from 1 to 100000. See `relay dead list --help`."),
        ("status --interval 0", "--interval must be a number from 0.1 to 3600. See `relay status --help`."),
        ("dead watch --poll nan", "--poll must be a number from 0.1 to 3600. See `relay dead watch --help`."),
        ("replay --rate 0", "--rate must be a number from 0.01 on. See `relay replay --help`."),
        ("limit orders abc", "RATE must be a number from 0.001 to 1000000. See `relay limit --help`."),
        ("limit orders 0", "RATE must be a number from 0.001 to 1000000. See `relay limit --help`."),
        ("limit orders nan", "RATE must be a number from 0.001 to 1000000. See `relay limit --help`."),
        ("limit orders inf", "RATE must be a number from 0.001 to 1000000. See `relay limit --help`."),
        ("limit orders 1e7", "RATE must be a number from 0.001 to 1000000. See `relay limit --help`."),
        ("limit orders -5", "RATE must be a number from 0.001 to 1000000. See `relay limit --help`."),
        ("limit orders -.5e3 --reason r", "RATE must be a number from 0.001 to 1000000. See `relay limit --help`."),
        ("limit orders 5 --raeson -5", "No such option: --raeson (Possible options: --reason). See `relay limit --help`."),
        ("show -5", "No such option: -5. See `relay show --help`."),
        ("demo --messages x", "--messages must be a whole number. See `relay demo --help`."),
        ("dead watch --replay code", "--replay: code has no value; write code=VALUE. See `relay dead watch --help`."),
        ("dead watch --replay cod=x", f"--replay has no key 'cod': there are {KEYS}. See `relay dead watch --help`."),
        ("dead watch --replay code=", "--replay: code must be an error code such as unroutable. See `relay dead watch --help`."),
        ("dead watch --webhook https://u:p@example.org/", f"--webhook: {NO_USER} See `relay dead watch --help`."),
        ("dead list --result x", "--result: 'x' is not one of 'rejected', 'failed', 'lock_expired'. See `relay dead list --help`."),
    ],
)
def test_a_wrong_argument_is_said_in_our_own_words(command: str, says: str) -> None:
    """Which argument, and what it must be; not how a library of ours puts it."""
    result = CliRunner().invoke(app, command.split(), prog_name="relay")

    assert (2, "", f"{says}\n") == (result.exit_code, result.stdout, result.stderr)
