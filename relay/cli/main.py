"""The command `relay`. Each command imports its modules only when it runs, so that `--help` is fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from relay import __version__
from relay.cli.commands import admit, adopt, config, contract, dead, key, pipeline, schedule
from relay.cli.commands.check import check
from relay.cli.commands.demo import demo
from relay.cli.commands.erase import erase
from relay.cli.commands.list_waiting import list_waiting
from relay.cli.commands.message import cancel, enqueue, limit, pause, resume, unlimit
from relay.cli.commands.receive import receive
from relay.cli.commands.replay import replay
from relay.cli.commands.show import show
from relay.cli.commands.status import status
from relay.cli.commands.work import work
from relay.cli.common.output import count
from relay.cli.common.support import REFUSED, Commands, complain, new_group, refuse, settings
from relay.cli.console.command import console

if TYPE_CHECKING:
    from relay.config.settings import Settings

app = new_group(
    name="relay", cls=Commands, help="A transactional outbox: sends rows in PostgreSQL to RabbitMQ, and waits for the confirms."
)


def main() -> None:
    """Run the command line."""
    app()


def _print_version(asked: bool) -> None:  # noqa: FBT001 - Typer's callback
    if asked:
        typer.echo(f"outbox-relay {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *, _version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False
) -> None:
    pass


@app.command()
def migrate(
    *,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only check: exit 1 if the schema is not up to date, a role or a grant is missing, or the roles have another prefix. "
            "Names what is missing, what is in the way, and what would be taken over. Logins that also reach another outbox are named, "
            "but do not change the exit code.",
        ),
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL that would run, for psql, and run nothing.")] = False,
) -> None:
    """Bring the schema up to date in one transaction; only one `relay migrate` works at a time."""
    from relay.postgres.schema import borders  # noqa: PLC0415 - see the module
    from relay.postgres.schema import migrate as schema  # noqa: PLC0415 - see the module

    chosen = settings()
    pending = schema.check(chosen.conninfo, schema=chosen.schema_name) if check or sql else []
    if sql:
        typer.echo(schema.render(schema=chosen.schema_name, seed=chosen.policy(), role_prefix=chosen.role_prefix, names=pending), nl=False)
        raise typer.Exit(REFUSED if check and pending else 0)
    if check:
        _report_check(chosen, pending)
        return
    applied = schema.migrate(chosen.conninfo, schema=chosen.schema_name, seed=chosen.policy(), role_prefix=chosen.role_prefix, say=complain)
    for name in applied:
        typer.echo(f"applied {name}")
    whole = borders.check_roles(chosen.conninfo, schema=chosen.schema_name) is None
    typer.echo("the schema is up to date" + ("" if whole else ", its roles are not"))


def _report_check(chosen: Settings, pending: list[str]) -> None:
    """Report that the schema is up to date, or exit with the problems; in any case list roles that also reach another outbox."""
    from relay.postgres.schema import borders  # noqa: PLC0415 - see the module
    from relay.postgres.schema.migrate import check_ids  # noqa: PLC0415 - see the module

    where = {"schema": chosen.schema_name}
    if pending:
        refuse(_plan(chosen, pending))
    for sentence in borders.crossings(chosen.conninfo, **where):
        complain(sentence)
    if shortage := borders.check_roles(chosen.conninfo, **where, role_prefix=chosen.role_prefix):
        refuse(f"The schema is up to date, its roles are not. {shortage}")
    if check_ids(chosen.conninfo, **where):
        refuse("The schema is up to date, and messages or numbers of another cluster are in it: run `relay migrate`, or start a relay.")
    typer.echo("the schema is up to date")


def _plan(chosen: Settings, pending: list[str]) -> str:
    """One line on what `relay migrate` would do, and what would prevent it."""
    from relay.postgres.schema import migrate as schema  # noqa: PLC0415 - see the module
    from relay.postgres.schema.sql_files import migrations  # noqa: PLC0415 - see the module

    begins = migrations()[0].name in pending
    place = schema.check_place(chosen.conninfo, schema=chosen.schema_name) if begins else None
    names = ", ".join(pending)
    if place and place.refusal:
        return f"{place.refusal} Then run `relay migrate`: {names}."
    todo = f"The schema is not up to date, run `relay migrate`: {names}."
    if place is None:
        return todo
    return f"{todo} It takes over the queue_message that is there, with {'its rows' if place.rows is None else count(place.rows, 'row')}."


@app.command()
def run() -> None:
    """Run the relay until SIGTERM or SIGINT; a second signal cuts the drain short."""
    from relay.app.outbox import run as serve  # noqa: PLC0415 - see the module

    raise typer.Exit(serve(settings()))


app.command()(demo)
app.command()(enqueue)
app.command()(status)
app.command("list")(list_waiting)
app.command()(check)
app.command()(console)
app.command()(admit.grant)
app.command()(admit.revoke)
app.command()(show)
app.command()(cancel)
app.command()(pause)
app.command()(resume)
app.command()(limit)
app.command()(unlimit)
app.command()(replay)
app.command()(erase)
app.command()(receive)
app.command()(work)
app.add_typer(adopt.app, name="adopt")
app.add_typer(contract.app, name="contract")
app.add_typer(dead.app, name="dead")
app.add_typer(key.app, name="key")
app.add_typer(schedule.app, name="schedule")
app.add_typer(config.app, name="config")
app.add_typer(pipeline.app, name="pipeline")
