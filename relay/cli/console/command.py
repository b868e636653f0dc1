"""`relay console`: pages about the outbox for a browser on this machine."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from relay.cli.common.support import complain, settings
from relay.errors import SettingsError

STATEMENT_LIMIT = "5s"
"""How long a statement of a page may take."""


def console(*, port: Annotated[int, typer.Option(min=0, max=65_535, help="Port on 127.0.0.1; 0 picks a free one.")] = 8086) -> None:
    """Show what waits, what is dead and one message's history in a browser on this machine, until Ctrl-C or SIGTERM.

    The pages only read, with the rights of your login. The command prints a link that works once and lets one browser in for 12 hours. When
    a browser has used the link, it prints the next one.
    """
    try:
        from relay.cli.console.pages import ConsolePages  # noqa: PLC0415 - needs Jinja, which only this command needs
        from relay.cli.console.server import serve  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise SettingsError(f"The console is not installed ({error.name} is missing): pip install 'outbox-relay[console]'.") from error
    from relay.cli.console.sessions import Sessions  # noqa: PLC0415 - see relay.cli.main
    from relay.postgres.operator_session import OperatorSession  # noqa: PLC0415 - see relay.cli.main

    chosen = settings()
    conninfo = (chosen.listen_url or chosen.database_url).get_secret_value()
    limits = {"lock_timeout": "1s", "statement_timeout": STATEMENT_LIMIT} if chosen.listen_url or chosen.prepare else {}
    sessions = Sessions(lambda: OperatorSession(conninfo, schema=chosen.schema_name, limits=limits))
    with closing(sessions):
        with sessions.session():
            pass  # a database that cannot be reached ends the command before it opens a port
        serve(ConsolePages(sessions, chosen.schema_name), port=port, say=complain)
