"""The options of `relay dead watch`, checked before any message is handled."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from relay.cli.common.support import complain, settings
from relay.errors import SettingsError
from relay.net.secret_url import read

if TYPE_CHECKING:
    from relay.cli.dead_watch.actions import Handler
    from relay.cli.dead_watch.plan import Look, WatchPlan

UNSIGNED = (
    "RELAY_WEBHOOK_SECRET is not set, so a receiver could not tell the webhook from a forged one: set it, or RELAY_WEBHOOK_SECRET_FILE, "
    "or give --unsigned."
)


class DeadResult(StrEnum):
    """Results that make a message dead."""

    REJECTED = "rejected"
    FAILED = "failed"
    LOCK_EXPIRED = "lock_expired"


@dataclass(frozen=True, kw_only=True)
class DeadFilter:
    """A filter for the dead messages of a watch; a message must match every option that is given."""

    exchange: Annotated[str | None, typer.Option(help="Only messages of this exchange.")] = None
    routing_key: Annotated[str | None, typer.Option(help="Only messages with this routing key; * matches any characters.")] = None
    result: Annotated[
        DeadResult | None, typer.Option(metavar="RESULT", help="Only messages with this result: rejected, failed or lock_expired.")
    ] = None
    code: Annotated[str | None, typer.Option(help="Only messages with this error code.")] = None

    def wanted(self) -> dict[str, str | None]:
        """The filter, as parameters of `watch_dead.sql`."""
        result = self.result.value if self.result else None
        return {"exchange": self.exchange, "routing_key": self.routing_key, "result": result, "error_code": self.code}


@dataclass(frozen=True, kw_only=True)
class WatchActions:
    """The actions on each message."""

    log: Annotated[
        bool,
        typer.Option(
            "--log", help="Print a line for each message, in addition to other handlers; the default if there is no other handler."
        ),
    ] = False
    command: Annotated[
        str | None,
        typer.Option(
            help="Run this command for each message, which it gets as JSON on standard input. Exit code 0 means handled; after any other "
            "the message is tried again."
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A further environment variable for the command; by default the command gets few variables, and no secret."
        ),
    ] = None
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="POST each message to this URL as JSON, signed by RELAY_WEBHOOK_SECRET; a 2xx means handled. Every user of this machine "
            "can read the option: keep a secret URL in --webhook-file or RELAY_WEBHOOK_URL.",
        ),
    ] = None
    webhook_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Like --webhook, with the URL from this file, which is read at the start.")
    ] = None
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Send webhooks without a signature.")] = False
    allow_private: Annotated[bool, typer.Option("--allow-private", help="Allow webhooks to this machine and to private networks.")] = False
    replay: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="Replay messages of a rule, such as code=unroutable,exchange=orders,after=5m,at-most=3; repeat it for several rules.",
        ),
    ] = None
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge each message that all handlers have handled.")] = False
    tries: Annotated[int, typer.Option(min=1, max=1000, help="How often a message is tried before it is given up.")] = 10
    timeout: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds after which a command is killed or a webhook request is abandoned.")
    ] = 30.0


def plan(which: DeadFilter, acting: WatchActions, *, look: Look | None, as_json: bool) -> WatchPlan:
    """The plan that the options describe.

    Raises:
        typer.BadParameter: an option cannot be carried out.
    """
    from relay.cli.dead_watch.plan import WatchPlan  # noqa: PLC0415 - see relay.cli.main
    from relay.cli.dead_watch.replay_rules import parse_rule  # noqa: PLC0415 - as above

    rules = [parse_rule(text) for text in acting.replay or ()]
    url = _url(acting)
    handlers = _handlers(acting, url, as_json=as_json)
    if acting.ack and not any(each.acts for each in handlers):
        raise typer.BadParameter("--ack needs a --command or a --webhook: a line that is printed is no answer.")
    does = {"command": acting.command, "webhook": url.text if url else None, "replay": acting.replay}
    identity = repr((sorted(does.items()), sorted(which.wanted().items())))
    return WatchPlan(
        handlers=handlers, rules=rules, wanted=which.wanted(), look=look, ack=acting.ack, tries=acting.tries, identity=identity
    )


class _Url(NamedTuple):
    """A webhook's URL, and its source."""

    text: str
    origin: str


def _url(acting: WatchActions) -> _Url | None:
    """The URL from the options, or by default from the settings."""
    if acting.webhook is not None and acting.webhook_file is not None:
        raise typer.BadParameter("--webhook and --webhook-file are both given: keep one of them.")
    if acting.webhook is not None:
        return _Url(acting.webhook, "--webhook")
    if acting.webhook_file is None:
        found = settings().webhook_url
        return _Url(found.get_secret_value(), "RELAY_WEBHOOK_URL") if found else None
    try:
        return _Url(read(acting.webhook_file), "--webhook-file")
    except SettingsError as error:
        sentence = f"--webhook-file {acting.webhook_file} cannot be read ({error}): name a file that holds the URL."
        raise typer.BadParameter(sentence) from None


def _handlers(acting: WatchActions, url: _Url | None, *, as_json: bool) -> list[Handler]:
    from relay.cli.dead_watch.actions import CommandHandler, LineHandler  # noqa: PLC0415 - as in plan

    if acting.env and acting.command is None:
        raise typer.BadParameter("--env is for a --command.")
    if url is None and (acting.unsigned or acting.allow_private):
        raise typer.BadParameter("--unsigned and --allow-private are for a --webhook.")
    made: list[Handler] = []
    if acting.log or not (acting.command is not None or url or acting.replay):
        made.append(LineHandler(as_json=as_json))
    if acting.command is not None:
        made.append(CommandHandler(_argv(acting.command), timeout=acting.timeout, env=_variables(acting.env or [])))
    if url is not None:
        made.append(_webhook(acting, url))
    return made


def _webhook(acting: WatchActions, url: _Url) -> Handler:
    from relay.cli.dead_watch.webhook import WebhookHandler  # noqa: PLC0415 - as in plan
    from relay.net.http_client import UrlError, check  # noqa: PLC0415 - as in plan

    try:
        target = asyncio.run(check(url.text, allow_private=acting.allow_private))
    except UrlError as error:
        hint = " Give --allow-private if it is meant." if "unless" in str(error) else ""
        raise typer.BadParameter(f"{url.origin}: {error}{hint}") from None
    if target.scheme == "http":
        complain(f"Webhooks to {target.place} travel as plain text: anyone on the network path can read them.")
    secret = None if acting.unsigned else _secret()
    return WebhookHandler(url.text, timeout=acting.timeout, allow_private=acting.allow_private, secret=secret)


def _secret() -> Callable[[], str]:
    """A function that returns the current secret."""
    chosen = settings()
    if chosen.webhook_secret is None:
        raise typer.BadParameter(UNSIGNED)
    found = chosen.secret("webhook_secret", changed=lambda: complain("Webhooks are signed by the new secret from now on."), kept=complain)
    return found if callable(found) else lambda: str(found)


def _variables(names: list[str]) -> list[str]:
    for name in names:
        if name not in os.environ:
            raise typer.BadParameter(f"--env names {name}, which is not set here.")
    return names


def _argv(command: str) -> list[str]:
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise typer.BadParameter(f"--command cannot be split into words: {error}.") from None
    if not argv or shutil.which(argv[0]) is None:
        raise typer.BadParameter("--command names no program that can be run; give a path, or a name that PATH finds.")
    return argv
