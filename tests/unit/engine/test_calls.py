"""What a message costs in Python calls, which no machine and no load changes. The limit is noted next to what was counted."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from relay.amqp import frames
from relay.amqp.publishing.barriers import MARK_EVERY, MOST_UNSEEN
from relay.engine.retry import RetryPolicy, decide_all
from relay.engine.settler import _rows
from relay.engine.window import Window
from relay.message import SUCCESS, Batch
from relay.postgres.parameters import positions_of, results_of
from tests.support.broker.publishing import batch, claim
from tests.support.fakes.channel_pool_harness import Bench

MESSAGES = 1_000
MOST = 7.0
"""Calls of Python functions for each message, from its finished claim to the parameters of its settle. Counted: 6.9: four encode it, one
takes its confirm, one makes its row; one is its share of what the broker answers to a mark."""


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Calls of Python functions by name, while the block runs; what earlier tests left behind is finalized before it, not within."""
    calls = Counter[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        gc.enable()


def test_a_message_costs_few_calls_from_its_claim_to_its_settle() -> None:
    """An unnecessary task, future or loop over claims would show here."""
    bench = Bench()
    bench.prove()
    claimed = batch([claim("x") for _ in range(MESSAGES)])

    with counted() as calls:
        _move(bench, claimed)

    assert sum(calls.values()) <= MOST * MESSAGES, calls.most_common(12)


def _move(bench: Bench, claimed: Batch) -> None:
    """Everything but the socket and the database."""
    window = Window(window=MESSAGES, window_bytes=1 << 30)
    window.add(claimed)
    job = bench.submit(claimed)
    for confirmed in (*range(MOST_UNSEEN, MESSAGES, MOST_UNSEEN), MESSAGES):
        for _ in range(MOST_UNSEEN // MARK_EVERY):
            bench.pipe.handlers[1].replied(frames.QOS_OK)
        bench.pipe.handlers[1].acked(confirmed + 1, multiple=True)
    portion = job._portion([*range(MESSAGES)])
    outcomes = decide_all(portion, RetryPolicy(), chance=float)
    rows = _rows(claimed, portion, outcomes)
    assert {"xids", "seqs"} == {*positions_of(rows)}
    assert results_of(rows)["results"] is None
    window.remove(claimed, portion.claims)
    assert ([SUCCESS] * MESSAGES, 0) == (outcomes, window.messages)
