"""`relay grant` and `relay revoke`: give logins a role of this outbox, or take it away."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from relay.cli.common.output import quoted
from relay.cli.common.support import console, not_found

Kind = Annotated[
    Literal["producer", "relay", "operator", "etl", "replayer", "consumer", "receiver"],
    typer.Argument(help="What the login may do; docs/operations/access.md has a table.", show_default=False),
]
Login = Annotated[str, typer.Argument(metavar="LOGIN", help="A login of this server.")]


def grant(kind: Kind, login: Login) -> None:
    """Let a login act in this outbox: make the login a member of one of the outbox's roles."""
    with console() as opened:
        role = opened.row("admit_login", kind=kind, login=login)["role"]
    typer.echo(f"{quoted(login)} is a member of {role}")


def revoke(kind: Kind, login: Login) -> None:
    """Remove a login from a role of this outbox; grants to the login itself stay."""
    with console() as opened:
        role = opened.row("dismiss_login", kind=kind, login=login)["role"]
    if role is None:
        not_found(f"{quoted(login)} is not a member of this outbox's role `{kind}`, and nothing is changed.")
    typer.echo(f"{quoted(login)} is no longer a member of {role}")
