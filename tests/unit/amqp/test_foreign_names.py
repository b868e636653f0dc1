"""Messages in the name of another user: the first refusal of a connection is the refusal of all of them."""

from __future__ import annotations

import pytest

from relay.amqp import frames
from relay.amqp.frames import ReplyReason
from relay.message import Verdict
from tests.support.broker.publishing import batch, claim
from tests.support.fakes.channel_pool_harness import Bench, verdicts

REFUSED = Verdict.REFUSED
NOT_IMPERSONATOR = ReplyReason(406, "PRECONDITION_FAILED - user_id property set to 'you' but authenticated user was 'guest'")
ANOTHER = ReplyReason(406, "PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in vhost '/' of queue type stream")
FOREIGN, OWN = (f'{{"userId": "{name}"}}' for name in ("you", "guest"))


@pytest.fixture
def bench() -> Bench:
    """A session of the user guest."""
    return Bench()


def publishes(bench: Bench) -> list[str]:
    """Return the exchanges to which something was written since the last look."""
    return [name for _, name in bench.pipe.methods() if name.startswith("publish")]


def test_after_one_refusal_nothing_in_the_name_of_another_is_written(bench: Bench) -> None:
    """Neither what waits on any exchange nor what comes later; it is refused at once, with a sentence that quotes no other message."""
    job = bench.submit(batch([claim("x", options=FOREIGN), claim("x", options=FOREIGN), claim("y", options=FOREIGN)]))
    assert ["publish x", "publish y"] == publishes(bench)
    bench.pipe.handlers[1].closed(NOT_IMPERSONATOR)
    later = bench.submit(batch([claim(exchange, options=FOREIGN) for exchange in ("x", "z")]))
    assert [] == publishes(bench)
    assert [REFUSED, REFUSED] == verdicts(later)
    assert [REFUSED, REFUSED, None] == verdicts(job)
    assert later.results[0] is not None
    assert ("broker_refused", False) == (later.results[0].code, "you" in later.results[0].detail)


def test_names_of_its_own_and_no_names_go_out_after_a_refusal(bench: Bench) -> None:
    """The refusal is about other users alone."""
    bench.submit(batch([claim("x", options=FOREIGN)]))
    bench.pipe.handlers[1].closed(NOT_IMPERSONATOR)
    publishes(bench)
    job = bench.submit(batch([claim("x", options=OWN), claim("y")]))
    for channel in list(bench.pipe.handlers):
        bench.pipe.handlers[channel].replied(frames.QOS_OK)
        bench.pipe.handlers[channel].acked(1, multiple=False)
    assert [Verdict.CONFIRMED] * 2 == verdicts(job)


@pytest.mark.parametrize(("options", "reason"), [(FOREIGN, ANOTHER), (OWN, NOT_IMPERSONATOR)], ids=["another-refusal", "its-own-name"])
def test_no_other_refusal_teaches_that(bench: Bench, options: str, reason: ReplyReason) -> None:
    """Neither another refusal of the same code does, nor these words about a message that names no other user."""
    bench.submit(batch([claim("x", options=options)]))
    bench.pipe.handlers[1].closed(reason)
    publishes(bench)
    bench.submit(batch([claim("y", options=FOREIGN)]))
    assert ["publish y"] == publishes(bench)


def test_what_could_never_be_sent_keeps_its_own_end_after_a_refusal(bench: Bench) -> None:
    """Its options are too long, which no correction of the login changes."""
    bench.submit(batch([claim("x", options=FOREIGN)]))
    bench.pipe.handlers[1].closed(NOT_IMPERSONATOR)
    job = bench.submit(batch([claim("x", options=f'{{"userId": "{"y" * 256}"}}')]))
    assert job.results[0] is not None
    assert "option_too_long" == job.results[0].code
