"""The base of every command: settings, the connection, and errors as one sentence with an exit code."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from relay.cli.common.help import App, Group, wrong_usage
from relay.errors import BrokerError, RelayError, StoreError

if TYPE_CHECKING:
    from relay.config.settings import Settings
    from relay.postgres.operator_session import OperatorSession

REFUSED, USAGE, NOT_FOUND, UNREACHABLE, INTERRUPTED = 1, 2, 3, 4, 130
"""Exit codes; docs/cli.md lists them. 0 is success."""
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LENGTH = re.compile(r"([0-9]{1,9})([smhd])")
"""The pattern of a length of time in an option: at most nine digits and a unit."""


class Commands(Group):
    """The command `relay`: an error is one sentence on stderr and an exit code, never a traceback."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line and exit with its code."""
        sys.exit(_guarded(lambda: super(Commands, self).main(*args, **{**extra, "standalone_mode": False})))


def new_group(**options: Any) -> typer.Typer:
    """An empty group of commands."""
    return App(**{"cls": Group, "add_completion": False, "pretty_exceptions_enable": False, "no_args_is_help": True, **options})


def settings() -> Settings:
    """Settings of this process's environment and `.env`.

    Raises:
        SettingsError: some settings are invalid; the error lists all of them.
    """
    from relay.config.settings import load  # noqa: PLC0415 - takes half of the start-up time, and some commands need no settings

    return load(os.environ)


@contextlib.contextmanager
def console() -> Iterator[OperatorSession]:
    """A connection to the database that the settings name."""
    from relay.postgres.operator_session import OperatorSession  # noqa: PLC0415 - as in settings

    chosen = settings()
    with OperatorSession(chosen.conninfo, schema=chosen.schema_name) as opened:
        yield opened


@contextlib.contextmanager
def session() -> Iterator[OperatorSession]:
    """A connection with its own PostgreSQL session. It bypasses the pooler if the settings have a direct URL.

    Statements wait at most one second for a lock. Behind a pooler no timeout is set, because the pooler could pass the session with this
    timeout on to an application.
    """
    from relay.postgres.operator_session import OperatorSession  # noqa: PLC0415 - as in settings

    chosen = settings()
    conninfo = (chosen.listen_url or chosen.database_url).get_secret_value()
    limits = {"lock_timeout": "1s"} if chosen.listen_url or chosen.prepare else {}
    with OperatorSession(conninfo, schema=chosen.schema_name, limits=limits) as opened:
        yield opened


def moment(now: Callable[[], datetime], text: str | None, option: str, *, ahead: bool = False) -> datetime | None:
    """A time from an option: ISO 8601 with a time zone, or a length such as 90s, 15m, 2h, 7d.

    A length is counted back from `now`, which queries the database, or forward with `ahead`. A day has 24 hours.

    Raises:
        typer.BadParameter: the text has neither form, or the time in UTC is outside the years 1 to 9999.
    """
    if text is None:
        return None
    try:
        if (away := _length(text)) is not None:
            clock = now().astimezone(UTC)
            return clock + away if ahead else clock - away
        return _written(text, option).astimezone(UTC)
    except OverflowError:
        raise typer.BadParameter(f"{option} is outside the years 1 to 9999; give a time within them.") from None


def length_of(text: str | None, option: str) -> timedelta | None:
    """A length of time from an option, such as 90s, 15m, 2h, 7d.

    Raises:
        typer.BadParameter: the text is not a length.
    """
    if text is not None and _length(text) is None:
        raise typer.BadParameter(f"{option} must be a length such as 90s, 15m, 2h, 7d.")
    return None if text is None else _length(text)


def _length(text: str) -> timedelta | None:
    found = LENGTH.fullmatch(text)
    return timedelta(seconds=int(found[1]) * SECONDS[found[2]]) if found else None


def _written(text: str, option: str) -> datetime:
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{option} must be a time such as 2031-01-31T12:00:00Z, or a length (90s, 15m, 2h, 7d).") from None
    if given.tzinfo is None:
        whole = given.isoformat()
        raise typer.BadParameter(f"{option} has no time zone; write it like {whole}Z or {whole}+01:00.")
    return given


def publish_options(text: str | None) -> Any:
    """Publish options that can be sent. They are checked as text, because 1e400 parsed as a float would no longer be valid JSON."""
    if text is None:
        return {}
    from relay.client.message import HEADERS_LIMIT  # noqa: PLC0415 - heavy for --help
    from relay.codec.option_rules import OptionsError, parse  # noqa: PLC0415 - as above
    from relay.codec.options import plan  # noqa: PLC0415 - as above

    try:
        # plan() below reports a value that is nested too deeply, with a message of its own.
        with contextlib.suppress(RecursionError):
            parse(text)
    except OptionsError:
        complain("--options must be a JSON object such as '{\"priority\": 5}'.")
        raise typer.Exit(USAGE) from None
    try:
        plan(text, HEADERS_LIMIT)
    except OptionsError as error:
        refuse(error.sentence)
    return json.loads(text)


def changed(held: bool, state: str, reason: str) -> str:  # noqa: FBT001 - the database's answer
    """The text about the result of a pause or limit; repeating the command changes at most the reason."""
    if held:
        return f"is {state}"
    return f"was {state} already; the reason is now {reason!r}" if reason else f"was {state} already; nothing is changed"


def refuse(sentence: str) -> NoReturn:
    """End the command with the exit code for a refusal; nothing was changed."""
    complain(sentence)
    raise typer.Exit(REFUSED)


def not_found(sentence: str) -> NoReturn:
    """End the command with the exit code for an object that does not exist."""
    complain(sentence)
    raise typer.Exit(NOT_FOUND)


def complain(sentence: str) -> None:
    """Print a sentence to stderr, with control characters made visible."""
    full = sentence if sentence.endswith((".", "?", "`")) else f"{sentence}."
    typer.echo(visible(full, keep="\n"), err=True)


def visible(text: str, keep: str = "") -> str:
    """Foreign text for a terminal: control characters become question marks."""
    return "".join(letter if letter.isprintable() or letter in keep else "?" for letter in text)


def _guarded(command: Callable[[], Any]) -> int:
    try:
        code = command()
    except KeyboardInterrupt:
        return INTERRUPTED
    except (StoreError, BrokerError) as error:
        complain(str(error))
        return UNREACHABLE
    except RelayError as error:
        complain(str(error))
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the last line of defence: operators get a sentence
        return _explain(error)
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> int:
    """Print a usage error in its own words, and any other error by its type alone, because its text may contain a payload."""
    if hasattr(error, "format_message"):
        complain(wrong_usage(error))
        return int(getattr(error, "exit_code", USAGE))
    if type(error).__name__ == "Abort":
        return INTERRUPTED
    if os.environ.get("PYTHONDEVMODE"):
        raise error
    complain(
        f"relay met an error that it does not know ({type(error).__name__}); run it again with PYTHONDEVMODE=1 and report what it prints."
    )
    return REFUSED
