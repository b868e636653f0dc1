"""Intakes as unit tests make and ask them."""

from __future__ import annotations

from relay.claims.intake import Intake
from relay.message import Batch
from tests.support.fakes.adapters import Clock, FakeClaims, a_finding, at_once


def intake_of(store: FakeClaims, clock: Clock) -> Intake:
    """An intake that owns lane 0 to 63, with a poll interval of a second."""
    store.lanes = dict.fromkeys(range(64), 1)
    intake = Intake(store=store, poll_interval=1.0, clock=clock)
    at_once(intake.lanes.keep())
    return intake


def claim(intake: Intake) -> Batch | None:
    """The next batch, with room for a hundred messages and a thousand bytes."""
    return at_once(intake.claim(100, 1000))


def waiting(intake: Intake, messages: int) -> None:
    """A scan has found so many messages whose wait is over."""
    intake.found(a_finding() for _ in range(messages))
