"""`relay config`: the policy settings in the database, which apply to every relay."""

from __future__ import annotations

from typing import Annotated

import typer

from relay.cli.common.arguments import Json
from relay.cli.common.output import show_json, show_table, words
from relay.cli.common.support import console, new_group

app = new_group(help="The policy settings in the database, which apply to every relay; a relay's environment does not overrule them.")


@app.command("list")
def list_settings(*, as_json: Json = False) -> None:
    """List every setting with its value and the default of a new database."""
    with console() as opened:
        rows = opened.rows("list_settings")
    if as_json:
        show_json(rows)
    else:
        show_table(rows, ["name", "value", "default", "changed_at"], nothing="no settings")


@app.command("set")
def set_setting(
    name: Annotated[str, typer.Argument(help="Name of the setting, as in `relay config list`, or of its environment variable.")],
    value: Annotated[str, typer.Argument(help="The new value; relays follow within seconds.")],
) -> None:
    """Change a setting; an invalid value is refused."""
    plain = name.lower().replace("-", "_").removeprefix("relay_")
    with console() as opened:
        previous = opened.row("set_setting", name=plain, value=value)["previous"]
    typer.echo(words(f"{plain} is {value} (was {previous})"))
