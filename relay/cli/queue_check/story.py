"""Reads everything that is known about one message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from relay.cli.queue_check.contexts import WaitContexts, read_row
from relay.cli.queue_check.wait_reasons import waits_for

if TYPE_CHECKING:
    from relay.cli.common.arguments import Archived
    from relay.cli.queue_check.rows import QueueRow
    from relay.postgres.operator_session import OperatorSession

FOLDED = 1000
"""How many parts of a bundle are listed: the default of bundle_max_messages."""
SHOWN = 1000
"""How many entries of a history, and how many replays, are shown. Producers choose ids, so there may be any number of both."""


def read_story(opened: OperatorSession, message: Archived) -> dict[str, Any]:
    """The history of a message in keys, queue and archive; `story` is empty if there is no such message.

    If several messages have the id, all are in it. Raises the errors of `OperatorSession.rows`.
    """
    asked = message._asdict()
    story = opened.rows("show_message", **asked, most=SHOWN)
    seen = _seen(opened, message)
    return {
        "id": message.id,
        "story": story,
        "waits_for": waits_for(seen, WaitContexts(opened).of(seen)) if seen else None,
        "replays": opened.rows("list_replays", **asked, most=SHOWN),
        "folded": opened.rows("list_folded", **asked, most=FOLDED),
        "erasures": opened.rows("list_erasures", **asked, most=SHOWN),
    }


def cut_at(found: Mapping[str, Any]) -> int | None:
    """How many entries of the history or replays are shown, if there may be more; else None."""
    return SHOWN if SHOWN in {len(found["story"]), len(found["replays"])} else None


def _seen(opened: OperatorSession, message: Archived) -> QueueRow | None:
    """The row of a message in the queue; None if the message is not in the queue."""
    found = read_row(opened, message.id)
    return found if found and message.xid in {None, found.xid} and message.seq in {None, found.seq} else None
