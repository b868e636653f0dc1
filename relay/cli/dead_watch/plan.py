"""What a watch over dead messages does, according to its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from relay.cli.dead_watch.actions import Dead, Handler
from relay.cli.dead_watch.replay_rules import Rule

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

TRIES: Final = 10

Look = Callable[["OperatorSession", Dead], Dead]


@dataclass(frozen=True, kw_only=True)
class WatchPlan:
    """What a watch does."""

    handlers: Sequence[Handler]
    rules: Sequence[Rule] = ()
    wanted: Mapping[str, object] = field(default_factory=lambda: dict.fromkeys(("exchange", "routing_key", "result", "error_code")))
    """The filter, as parameters of `watch_dead.sql`."""
    look: Look | None = None
    """A function that adds to a message the values that the handlers need."""
    ack: bool = False
    """Whether to acknowledge messages that all handlers have handled.

    Messages that a rule replays are left out: a replay acknowledges its original.
    """
    tries: int = TRIES
    """How often a message is tried before it is given up."""
    identity: str = ""
    """The identity of this watch: watches with the same handlers share it."""

    @property
    def acts(self) -> bool:
        """Whether the watch does more than show messages. Two active watches of this kind with the same plan would do everything twice."""
        return bool(self.rules) or any(each.acts for each in self.handlers)
