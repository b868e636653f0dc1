"""`relay schedule`: messages that are inserted at scheduled times."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import typer

from relay.cli.common.arguments import Exchange, Json
from relay.cli.common.output import named, quoted, show_json, show_table, words
from relay.cli.common.support import console, length_of, new_group, not_found, publish_options

app = new_group(help="Messages at scheduled times, inserted by living relays or by pg_cron.")

Name = Annotated[str, typer.Argument(help="Name of the schedule, at most 63 printable characters.")]
COLUMNS = ["name", "spec", "time_zone", "to", "missed", "last", "next", "why"]


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """When a schedule runs and how its messages are sent; each field is an option (see relay.cli.common.help)."""

    zone: Annotated[str, typer.Option(help="Time zone of the cron line, such as Europe/Berlin; EVERY needs none.")] = "UTC"
    missed: Annotated[
        Literal["skip", "once", "all"],
        typer.Option(help="After missed ticks: send no message, one message, or one message for each tick."),
    ] = "once"
    options: Annotated[str | None, typer.Option(help="Publish options as a JSON object, e.g. '{\"priority\": 5}'.")] = None
    ordering_key: Annotated[str | None, typer.Option(help="Ordering key of the messages.")] = None
    expires_after: Annotated[
        str | None,
        typer.Option(metavar="LENGTH", help="A message is not sent later than this after its insert: 90s, 15m, 2h, 7d."),
    ] = None
    paused: Annotated[bool, typer.Option("--paused", help="The schedule inserts nothing until it is resumed.")] = False
    replace: Annotated[bool, typer.Option("--replace", help="Change the schedule if one with this name exists.")] = False

    def fields(self) -> dict[str, Any]:
        """The statement's parameters, except those of the message."""
        kept = {name: value for name, value in asdict(self).items() if name not in {"zone", "options"}}
        return {**kept, "time_zone": self.zone, "expires_after": length_of(self.expires_after, "--expires-after")}


@app.command("add")
def add_schedule(
    name: Name,
    spec: Annotated[
        str, typer.Argument(help="A cron line such as '0 3 * * 1-5', a name such as @daily, or 'EVERY 15 minutes'; in quotes.")
    ],
    exchange: Exchange,
    routing_key: Annotated[str, typer.Argument(help="Routing key; for the default exchange the queue's name.")],
    content: Annotated[str, typer.Argument(metavar="JSON", help="Content of each message.")],
    *,
    terms: ScheduleOptions,
) -> None:
    """Insert a message at scheduled times. A message that can never be sent is refused now, not at the first tick."""
    values = {"name": name, "spec": spec, **_message(exchange, routing_key, content, terms), **terms.fields()}
    with console() as opened:
        first = opened.row("add_schedule", **values)
    typer.echo(f"schedule {quoted(name)} " + (f"runs next at {first['next']}" if first["next_at"] else "is paused"))


@app.command("list")
def list_schedules(*, as_json: Json = False) -> None:
    """List schedules with their last and next ticks, in their own time zones, and with their last error."""
    with console() as opened:
        rows = opened.rows("list_schedules")
    if as_json:
        show_json(rows)
    else:
        show_table([_shown(row) for row in rows], COLUMNS, nothing="no schedules")


@app.command("remove")
def remove_schedule(name: Name) -> None:
    """Remove a schedule. Messages that it has inserted are still sent."""
    with console() as opened:
        removed = opened.row("remove_schedule", name=name)["removed"]
    if not removed:
        not_found(f"There is no schedule {quoted(name)}; `relay schedule list` shows them all.")
    typer.echo(f"schedule {quoted(name)} is removed")


@app.command("pause")
def pause_schedule(name: Name) -> None:
    """Pause a schedule: it misses its ticks until it is resumed. Messages of missed ticks are not sent later."""
    with console() as opened:
        held = opened.row("pause_schedule", name=name)["held"]
    typer.echo(f"schedule {quoted(name)} is paused" if held else f"schedule {quoted(name)} was paused already; nothing is changed")


@app.command("resume")
def resume_schedule(name: Name) -> None:
    """Resume a schedule; its next message is inserted at the next tick."""
    with console() as opened:
        freed = opened.row("resume_schedule", name=name)["freed"]
    typer.echo(f"schedule {quoted(name)} is resumed" if freed else f"schedule {quoted(name)} was not paused; nothing is changed")


@app.command("run-now")
def run_schedule(name: Name) -> None:
    """Insert a schedule's message now, even if the schedule is paused, and print the message's id. The next tick does not change."""
    with console() as opened:
        typer.echo(str(opened.row("run_schedule", name=name)["id"]))


def _message(exchange: str, routing_key: str, content: str, terms: ScheduleOptions) -> dict[str, Any]:
    """Parameters of the message, checked in the same way as by `relay enqueue`."""
    from relay.client import JsonText  # noqa: PLC0415 - heavy for --help
    from relay.client.message import validate  # noqa: PLC0415 - as above

    fields = {"exchange": exchange, "routing_key": routing_key, "ordering_key": terms.ordering_key}
    message = validate({**fields, "options": publish_options(terms.options), "content": JsonText(content)})
    return {**fields, "content": message.content_text, "options": message.options.text()}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row for the table, with names in quotes if they could be misread."""
    to = f"{named(row['exchange'])} {named(row['routing_key'])}"
    why = "paused" if row["paused"] else words(row["last_error"] or row["fails"])
    return {**row, "name": named(row["name"]), "spec": quoted(row["spec"]), "time_zone": named(row["time_zone"]), "to": to, "why": why}
