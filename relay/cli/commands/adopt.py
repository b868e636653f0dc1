"""`relay adopt`: commands for moving from another outbox to this one; see docs/adopting.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from relay.cli.common.arguments import Json
from relay.cli.common.output import count, quoted, show_json, show_table
from relay.cli.common.support import console, new_group

if TYPE_CHECKING:
    from relay.adopt.adoption import Adoption
    from relay.adopt.missing_table import MissingTable
    from relay.postgres.operator_session import OperatorSession

app = new_group(help="Move from another outbox: watch its table, divert its new rows, empty it, or go back (docs/adopting.md).")
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The other outbox's table; the name in the form of SQL.")]
Sql = Annotated[bool, typer.Option("--sql", help="Print the SQL that would run, for psql, and run nothing.")]
ROUTES = ("exchange", "routing_key", "rows", "problem")
COLUMNS = ("table", "layout", "by", "phase", "since", "waiting", "leased", "failed", "seen", "refused", "behind")


@dataclass
class Mapping:
    """Exchange, routing key, ordering key and layout options of the messages; each field is an option (see relay.cli.common.help)."""

    exchange: Annotated[
        str | None, typer.Option(metavar="TEMPLATE", help="The exchange, as a template with columns of the table in braces: '{queue}'.")
    ] = None
    routing_key: Annotated[str | None, typer.Option(metavar="TEMPLATE", help="The routing key, as such a template.")] = None
    ordering_key: Annotated[str | None, typer.Option(metavar="TEMPLATE", help="The ordering key, as such a template; '' for no key.")] = (
        None
    )
    further: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An option of the layout; may be repeated.")] = (
        None
    )

    def chosen(self) -> dict[str, str]:
        """The options that were given."""
        given = {"exchange": self.exchange, "routing_key": self.routing_key, "ordering_key": self.ordering_key}
        pairs = [text.partition("=") for text in self.further or []]
        if wrong := [name for name, equals, _ in pairs if not equals]:
            raise typer.BadParameter(f"--set must be NAME=VALUE, not {quoted(wrong[0])}.")
        return {name: value for name, value in given.items() if value is not None} | {name: value for name, _, value in pairs}


@app.command()
def mirror(
    layout: Annotated[str, typer.Argument(metavar="LAYOUT", help="Layout of the table; docs/adopting.md lists the layouts.")],
    table: TableName,
    mapping: Mapping,
    *,
    by: Annotated[
        Literal["trigger", "view"] | None, typer.Option(help="How the switch will divert new rows; by default the layout decides.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check the existing rows, and change nothing.")] = False,
    sql: Sql = False,
) -> None:
    """Watch a table: the old relay continues to send, and a trigger checks whether outbox-relay could send each new row."""
    from relay.adopt import adoption  # noqa: PLC0415 - heavy for --help

    if check and sql:
        raise typer.BadParameter("--check runs nothing that --sql could print: leave one of them out.")
    with console() as opened:
        script = adoption.begin(opened, table, layout, mapping.chosen(), by)
        if check:
            show_table(adoption.judge(opened, script), ROUTES, nothing=f"{quoted(table)} fits, and has no rows to judge")
        elif sql:
            _print(script.mirror())
        else:
            adoption.run(opened, script.mirror())
            typer.echo(f"{quoted(table)} is watched; look at it with `relay adopt list`, then `relay adopt switch`")


@app.command()
def switch(table: TableName, *, sql: Sql = False) -> None:
    """Divert new rows into the queue: outbox-relay sends rows committed from now on, the old relay sends earlier ones."""
    from relay.adopt import adoption  # noqa: PLC0415 - heavy for --help

    with console() as opened:
        script = adoption.find_adoption(opened, table).switch()
        _run(opened, script, sql=sql, said=f"{quoted(table)}: new rows become messages; those from before are the old relay's")


@app.command()
def take(
    table: TableName,
    *,
    leased: Annotated[
        bool,
        typer.Option(
            "--leased",
            help="Also take rows that the old relay has claimed; end the old relay first. Rows that it had already sent are sent again.",
        ),
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Also take rows that the old relay has given up.")] = False,
) -> None:
    """Move the rows that wait in the table into the queue, each row once, while the old relay runs or after its end."""
    from relay.adopt import adoption  # noqa: PLC0415 - heavy for --help

    states = ["waiting", *(["leased"] if leased else []), *(["failed"] if failed else [])]
    with console() as opened:
        moved = adoption.find_adoption(opened, table).take(states)
    typer.echo(f"{count(moved, 'row is', 'rows are')} taken over")


@app.command()
def finish(
    table: TableName,
    *,
    slot: Annotated[
        str | None,
        typer.Option(help="The old relay's replication slot, if it reads the WAL; by default all logical slots of this database count."),
    ] = None,
) -> None:
    """Record that the old relay has no rows left and may be ended; refused while it still has rows."""
    from relay.adopt import adoption  # noqa: PLC0415 - heavy for --help

    with console() as opened:
        adoption.run(opened, adoption.find_adoption(opened, table).finish(slot))
    typer.echo(f"{quoted(table)}: the old relay has nothing left and may end; new rows become messages")


@app.command()
def back(table: TableName, *, sql: Sql = False) -> None:
    """Return new rows to the old relay, from any phase; messages already in the queue are still sent."""
    from relay.adopt import adoption  # noqa: PLC0415 - heavy for --help

    with console() as opened:
        found = adoption.find_any(opened, table)
        said = ": new rows are the old relay's again" if isinstance(found, adoption.Adoption) else " was dropped, and is forgotten"
        _run(opened, found.back(), sql=sql, said=f"{quoted(table)}{said}")


@app.command("list")
def list_adoptions(*, as_json: Json = False) -> None:
    """List tables of other outboxes: their phase, the rows that the old relay has left, and the findings of a mirror."""
    from relay.adopt import adoption  # noqa: PLC0415 - heavy for --help

    with console() as opened:
        rows = [_shown(one) for one in adoption.adoptions(opened)]
    if as_json:
        show_json(rows)
        return
    show_table(rows, COLUMNS, nothing="no table of another outbox is watched or switched")
    for row in rows:
        if row["gone"]:
            typer.echo(f"\n{row['table']} is gone: rename it back, or, if it was dropped, let `relay adopt back` forget it")
        if row["routes"]:
            typer.echo(f"\nseen of {row['table']}:")
            show_table(row["routes"], ROUTES, nothing="")


def _run(opened: OperatorSession, script: str, *, sql: bool, said: str) -> None:
    from relay.adopt import adoption  # noqa: PLC0415 - heavy for --help

    if sql:
        _print(script)
        return
    adoption.run(opened, script)
    typer.echo(said)


def _print(script: str) -> None:
    typer.echo(f"\\set ON_ERROR_STOP on\nBEGIN ISOLATION LEVEL READ COMMITTED;\n{script}COMMIT;")


def _shown(one: Adoption | MissingTable) -> dict[str, Any]:
    from relay.adopt.missing_table import MissingTable  # noqa: PLC0415 - heavy for --help

    missing = isinstance(one, MissingTable)
    counts, routes, slots = ({}, [], []) if isinstance(one, MissingTable) else (one.count(), one.seen(), one.slots())
    return {
        "table": one.row["source"],
        "layout": one.row["layout"],
        "by": one.row["by"],
        "phase": one.row["phase"],
        "since": one.row["changed_at"],
        "waiting": counts.get("waiting", 0),
        "leased": counts.get("leased", 0),
        "failed": counts.get("failed", 0),
        "seen": sum(route["rows"] for route in routes),
        "refused": sum(route["rows"] for route in routes if route["problem"]),
        "behind": [slot["slot"] for slot in slots if not slot["passed"]],
        "gone": missing,
        "slots": slots,
        "routes": routes,
    }
