"""By what an operator sees each fault of the menu: metric, log event, status line; the fault's own test asserts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.support.fault_menu import MENU


class Signs(NamedTuple):
    """Where one fault shows; empty where it does not, or where nothing has to be seen because nothing is wrong.

    Each is a name in backticks and at most a few words: a metric and its value, an event of the log, what `relay status` says.
    """

    metric: str
    event: str
    status: str


SIGNS: Mapping[int, Signs] = {
    3: Signs("`relay_in_flight`", "`stopping`, `stopped` with `kept`", "`left`, with what it keeps locked"),
    4: Signs("`relay_database_up` 0", "`database_down`, `database_up`", ""),
    8: Signs("`relay_broker_blocked` 1", "`broker_blocked`, `broker_unblocked`", "the broker is down or blocked"),
    9: Signs("`relay_broker_blocked` 1", "`broker_blocked`, `broker_unblocked`", "the broker is down or blocked"),
    10: Signs("`relay_broker_up` 0, `relay_database_up` 0", "`broker_down`, `broker_up`, `database_down`, `database_up`", ""),
    11: Signs(
        '`relay_messages_total{result="retry"}` rises, `relay_broker_up` 0', "`exchange_quarantined`, `broker_down`, `broker_up`", "delayed"
    ),
    12: Signs('`relay_messages_total{result="retry"}` rises', "", "delayed"),
    14: Signs('`relay_dead_total{code="unroutable"}` rises', "`message_dead`", "dead messages are not acknowledged"),
    28: Signs("`relay_broker_up` 0", "`broker_down`, `broker_up`", "the broker is down or blocked"),
}
"""By number of the fault."""


def signs() -> str:
    """The table of docs/operations.md: every fault whose signs are asserted."""
    rows = (f"| {MENU[number]} | {' | '.join(seen or '-' for seen in SIGNS[number])} |" for number in sorted(SIGNS))
    return "\n".join(["| fault | metric | log event | `relay status` |", "|---|---|---|---|", *rows])
