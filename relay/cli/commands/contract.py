"""`relay contract`: the JSON Schemas that contents of an exchange and routing key must satisfy."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relay.cli.common.arguments import Exchange, Json
from relay.cli.common.output import count, quoted, show_fields, show_json, show_table, typed
from relay.cli.common.support import REFUSED, complain, console, moment, new_group, not_found

if TYPE_CHECKING:
    from relay.contracts.registry import CompiledContract
    from relay.postgres.operator_session import OperatorSession

app = new_group(help="Message contracts: the JSON Schema (2020-12) that contents of an exchange and routing key must satisfy.")


class Mode(StrEnum):
    """What happens to a message that breaks a contract."""

    ENFORCE = "enforce"
    WARN = "warn"


Pattern = Annotated[str, typer.Argument(metavar="PATTERN", help="Routing key; * matches one word, # any number, as in a binding.")]
SOURCE_HELP = "A file with a JSON Schema, - for standard input, or a pydantic model as module:Model."
Source = Annotated[str, typer.Argument(metavar="FILE|MODULE:MODEL", help=SOURCE_HELP)]
Version = Annotated[int | None, typer.Option(min=1, max=1_000_000, help="Only this version.")]


@app.command("add")
def add(
    exchange: Exchange,
    pattern: Pattern,
    source: Source,
    *,
    version: Annotated[int | None, typer.Option(min=1, max=1_000_000, help="The version's number; by default the next number.")] = None,
    mode: Annotated[
        Mode,
        typer.Option(
            metavar="MODE", help="enforce: a message that breaks the contract is rejected; warn: it is sent, and a warning is logged."
        ),
    ] = Mode.WARN,
) -> None:
    """Add a version of a contract; relays follow within seconds. Adding the same schema again changes nothing.

    For each exchange and pattern the newest version in mode enforce is in force; a newer version in mode warn is checked too.
    """
    text = _checked(source)
    with console() as opened:
        row = opened.row("add_contract", exchange=exchange, routing_key=pattern, schema=text, version=version, mode=mode.value)
        keys = [one for one in opened.rows("list_recent_keys") if one["exchange"] == exchange]
    name = f"contract {quoted(exchange)} {quoted(pattern)} version {row['added']}"
    typer.echo(f"{name} is added, mode {mode}" if row["made"] else f"{name} is there already; nothing is changed")
    _warn_unmatched(keys, exchange, pattern)


@app.command("list")
def list_contracts(*, as_json: Json = False) -> None:
    """List every version of every contract, and whether it is in force."""
    with console() as opened:
        rows = _with_validity(opened.rows("list_contracts"), opened.rows("read_contracts"))
    if as_json:
        show_json(rows)
        return
    shown = [{**row, "exchange": quoted(row["exchange"]), "pattern": quoted(row["routing_key"])} for row in rows]
    for row in rows:
        if row["unusable"]:
            name = f"{quoted(row['exchange'])} {quoted(row['routing_key'])} version {row['version']}"
            complain(f"Messages of contract {name} go unchecked, for no relay can read it: {row['unusable']}")
    show_table(shown, ["exchange", "pattern", "version", "mode", "holds", "bytes", "added_at", "added_by"], nothing="there is no contract")


@app.command("show")
def show(exchange: Exchange, pattern: Pattern, *, version: Version = None, as_json: Json = False) -> None:
    """Show the newest version of a contract, or the version given, with its schema."""
    with console() as opened:
        found = _versions(opened, exchange, pattern, version)[-1]
    found["schema"] = json.loads(found["schema"])
    if as_json:
        show_json(found)
        return
    schema = found.pop("schema")
    show_fields(found)
    show_json(schema)


@app.command("mode")
def set_mode(
    exchange: Exchange,
    pattern: Pattern,
    mode: Annotated[Mode, typer.Argument(metavar="MODE", help="enforce or warn.")],
    *,
    version: Version = None,
) -> None:
    """Change what happens to messages that break a contract, for the newest version or the version given."""
    with console() as opened:
        row = opened.row("set_contract_mode", exchange=exchange, routing_key=pattern, mode=mode.value, version=version)
    same = row["previous"] == mode.value
    end = f"was in mode {mode} already; nothing is changed" if same else f"is in mode {mode} (was {row['previous']})"
    typer.echo(f"contract {quoted(exchange)} {quoted(pattern)} version {row['changed']} {end}")


@app.command("remove")
def remove(
    exchange: Exchange,
    pattern: Pattern,
    *,
    version: Version = None,
    every: Annotated[bool, typer.Option("--all", help="Remove all versions.")] = False,
) -> None:
    """Remove a version of a contract, or all versions; the previous version is then in force again."""
    if (version is None) != every:
        raise typer.BadParameter("Say what to remove: either --version or --all.")
    with console() as opened:
        removed = opened.row("remove_contract", exchange=exchange, routing_key=pattern, version=version)["removed"]
    if not removed:
        not_found(_missing(exchange, pattern))
    typer.echo(f"{count(removed, 'version')} of contract {quoted(exchange)} {quoted(pattern)} {'is' if removed == 1 else 'are'} removed")


@app.command("test")
def try_out(
    exchange: Exchange,
    pattern: Pattern,
    source: Annotated[
        str | None, typer.Argument(metavar="[FILE|MODULE:MODEL]", help=f"{SOURCE_HELP} By default the contracts in force.")
    ] = None,
    *,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Archived from this time on: 2031-01-31T12:00:00Z, or 90s, 15m, 2h, 7d ago.")
    ] = "1d",
    limit: Annotated[int, typer.Option(min=1, max=100_000_000, help="Check at most this many messages, the newest.")] = 100_000,
    as_json: Json = False,
) -> None:
    """Check archived messages against a schema before the schema is enforced, and count the failures; exit code 1 if there are any.

    The command reads contents, which requires SELECT on queue_message_archive (`relay grant etl LOGIN`). It changes nothing, and shows no
    content.
    """
    from relay.cli.contracts.dry_run import Trial  # noqa: PLC0415 - see relay.cli.main

    text = None if source is None else _checked(source)
    with console() as opened:
        begin = moment(opened.now, since, "--since")
        if begin and begin > opened.now():
            raise typer.BadParameter("Nothing matches: --since must be before now.")
        held = _on_trial(opened, exchange, pattern, text)
        trial = Trial(exchange, pattern)
        trial.run(opened.stream("read_archived_contents", exchange=exchange, since=begin), held, limit)
    if as_json:
        show_json(asdict(trial))
    else:
        trial.show()
    if not trial.messages:
        complain(f"No message of exchange {quoted(exchange)} with a routing key like {quoted(pattern)} was archived since then.")
    if trial.would_fail:
        raise typer.Exit(REFUSED)


@app.command("asyncapi")
def asyncapi(
    *,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the document to this file; by default to standard output.")
    ] = None,
    title: Annotated[str, typer.Option(help="The document's title.")] = "Messages",
    api_version: Annotated[str, typer.Option(metavar="TEXT", help="The document's version.")] = "1.0.0",
) -> None:
    """Write an AsyncAPI 3 document of all contracts, and of recently used exchanges and routing keys without a contract."""
    from relay.contracts.asyncapi import document  # noqa: PLC0415 - see relay.cli.main
    from relay.contracts.registry import Contract  # noqa: PLC0415 - see relay.cli.main

    with console() as opened:
        rows = opened.rows("read_contracts")
        keys = [(row["exchange"], row["routing_key"]) for row in opened.rows("list_recent_keys")]
    made = document([Contract(**row) for row in rows], keys, title=title, version=api_version)
    if left_out := made.left_out:
        complain(f"{count(left_out, 'routing key')} without a contract left out: the document names the first {made.named} only.")
    if output is None:
        show_json(made.document)
        return
    try:
        output.write_text(json.dumps(made.document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{quoted(str(output))} cannot be written: {error.strerror or type(error).__name__}.") from None


def _checked(source: str) -> str:
    """The schema of a source as JSON text; an unsuitable schema is refused before any SQL runs."""
    from relay.cli.contracts.schema_source import read_schema  # noqa: PLC0415 - see relay.cli.main
    from relay.codec.json_text import json_text  # noqa: PLC0415 - see relay.cli.main
    from relay.contracts.schema import Schema, SchemaError  # noqa: PLC0415 - see relay.cli.main

    document = read_schema(source)
    Schema(document)
    try:
        return json_text(document, "The schema")
    except ValueError as error:
        # The advice to use `body` is left out: it applies to contents, not to a schema.
        raise SchemaError(f"{str(error).removesuffix(' or send it in body')}.") from None


def _on_trial(opened: OperatorSession, exchange: str, pattern: str, text: str | None) -> list[CompiledContract]:
    """The schemas of a trial: the given schema, or by default the contract's versions in force."""
    from relay.contracts.registry import CompiledContract, Contract, in_force  # noqa: PLC0415 - see relay.cli.main
    from relay.contracts.schema import compiled  # noqa: PLC0415 - see relay.cli.main

    if text is not None:
        return [CompiledContract(Contract(exchange, pattern, 0, "warn", text), compiled(text))]
    names = Contract._fields
    rows = [Contract(**{name: row[name] for name in names}) for row in _versions(opened, exchange, pattern, None)]
    return [CompiledContract(row, compiled(row.schema)) for row in in_force(rows)]


def _versions(opened: OperatorSession, exchange: str, pattern: str, version: int | None) -> list[dict[str, Any]]:
    rows = opened.rows("show_contract", exchange=exchange, routing_key=pattern, version=version)
    if not rows:
        not_found(_missing(exchange, pattern))
    return rows


def _missing(exchange: str, pattern: str) -> str:
    return f"There is no such contract for {quoted(exchange)} {quoted(pattern)}; `relay contract list` shows those that are there."


def _with_validity(rows: list[dict[str, Any]], schemas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to each version whether it is in force, and why not: a version that no relay can read has no effect."""
    from relay.contracts.registry import Contract, Contracts, in_force  # noqa: PLC0415 - see relay.cli.main

    versions = {(each.exchange, each.routing_key, each.version): each for each in (Contract(**row) for row in schemas)}
    hold = {each[:3] for each in in_force(versions.values())}
    unusable = {one.contract[:3]: one.sentence for one in Contracts(versions.values()).unusable}
    places = [(row["exchange"], row["routing_key"], row["version"]) for row in rows]
    return [
        {**row, "holds": place in hold - unusable.keys(), "unusable": unusable.get(place)} for row, place in zip(rows, places, strict=True)
    ]


def _warn_unmatched(keys: list[dict[str, Any]], exchange: str, pattern: str) -> None:
    """Warn of a pattern that matches no known routing key, because a mistyped pattern would otherwise go unnoticed."""
    from relay.contracts.patterns import Patterns  # noqa: PLC0415 - see relay.cli.main

    patterns = Patterns([pattern])
    if not any(patterns.matching(row["routing_key"]) for row in keys):
        complain(
            f"None of the messages archived lately has exchange {quoted(exchange)} and a routing key like {quoted(pattern)}; "
            f"if that is a slip: {typed('contract remove', exchange)[:-1]} PATTERN --all`"
        )
