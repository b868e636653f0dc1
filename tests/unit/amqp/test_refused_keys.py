"""Routing keys that the broker refuses: the others of their exchange go as if those were not there."""

from __future__ import annotations

import pytest
from pamqp import commands
from pamqp.frame import unmarshal

from relay.amqp import frames
from relay.amqp.close_reasons import FORMS, Form, Subject
from relay.amqp.frames import ReplyReason
from relay.amqp.publishing.publish_batch import PublishBatch
from relay.amqp.publishing.refused_keys import MAX_KEYS, REMEMBERED, RefusedKeys
from relay.message import Verdict
from tests.support.broker.publishing import batch, claim
from tests.support.fakes.channel_pool_harness import Bench, verdicts

REFUSED, CONFIRMED = Verdict.REFUSED, Verdict.CONFIRMED
TOPIC = ReplyReason(403, "ACCESS_REFUSED - access to topic 'no' in exchange 'x' in vhost '/' refused for user 'u'")
ANOTHER = ReplyReason(406, "PRECONDITION_FAILED - user_id property set to 'you' but authenticated user was 'guest'")
MANY = 1_000_000


@pytest.fixture
def bench() -> Bench:
    """A session that has learned that the broker refuses the key `no` of the exchange `x`."""
    made = Bench()
    submit(made, "no")
    made.pipe.handlers[1].closed(TOPIC)
    written(made)
    return made


def submit(bench: Bench, *keys: str, exchange: str = "x", attempts: int = 1) -> PublishBatch:
    """Submit a message for each of these keys."""
    return bench.submit(batch([claim(exchange, key, attempts=attempts) for key in keys], seconds=MANY, now=bench.clock()))


def written(bench: Bench) -> list[tuple[int, str]]:
    """Channels and routing keys of what was written since the last look."""
    found, data = [], bench.pipe._written
    while data:
        size, channel, frame = unmarshal(data)
        data = data[size:]
        if isinstance(frame, commands.Basic.Publish):
            found.append((channel, frame.routing_key))
    bench.pipe._written = b""
    return found


def take(bench: Bench, channel: int, tag: int = 1) -> None:
    """The broker takes what was written last on a channel."""
    bench.pipe.handlers[channel].replied(frames.QOS_OK)
    bench.pipe.handlers[channel].acked(tag, multiple=False)


@pytest.mark.parametrize("form", [form for form in FORMS if form.about is Subject.TOPIC_REFUSED], ids=lambda form: form.versions)
def test_a_key_that_was_refused_is_not_asked_for_again_for_a_while(form: Form) -> None:
    """Its messages, also such as wait, are refused at once, whichever version's words taught it; then the broker is asked again."""
    reason = ReplyReason(403, form.text)
    bench = Bench()
    job = submit(bench, "no", "yes", "no")
    bench.pipe.handlers[1].closed(reason)
    assert [(1, "no"), (2, "yes")] == written(bench)
    take(bench, 2)
    again = submit(bench, "no", attempts=2)
    assert ([REFUSED, CONFIRMED, REFUSED], [REFUSED]) == (verdicts(job), verdicts(again))
    assert again.results[0] is not None
    assert ("access_refused", False) == (again.results[0].code, again.results[0].of_exchange)
    assert "routing key 'no' of exchange 'x'" in again.results[0].detail
    bench.ahead += REMEMBERED
    submit(bench, "no")
    assert ["no"] == [key for _, key in written(bench)]


def test_unknown_keys_are_asked_for_one_at_a_time_the_newest_and_the_oldest_in_turn(bench: Bench) -> None:
    """However many wait: each answer brings the next, and a new message waits behind two of them at the most."""
    flood = submit(bench, *(f"no {number}" for number in range(1000)))
    new = submit(bench, "yes")
    order = []
    for _ in range(4):
        [(channel, key)] = written(bench)
        order.append(key)
        bench.pipe.handlers[channel].closed(TOPIC) if key != "yes" else take(bench, channel)
    assert ["no 999", "no 0", "yes", "no 1"] == order
    assert [CONFIRMED] == verdicts(new)
    assert 3 == verdicts(flood).count(REFUSED)


def test_ever_new_keys_go_in_bursts_that_grow_until_one_is_refused(bench: Bench) -> None:
    """An exchange whose keys hold numbers is not slow for a minute over one bad key."""
    submit(bench, *(f"yes {number}" for number in range(1000)))
    bursts: list[int] = []
    while several := written(bench):
        bursts.append(len(several))
        bench.pipe.handlers[several[0][0]].acked(sum(bursts), multiple=True)
    assert ([1] * 16, 1000, True) == (bursts[:16], sum(bursts), len(bursts) < 100)
    submit(bench, "no 1")
    [(channel, _)] = written(bench)
    submit(bench, *(f"new {number}" for number in range(100)))
    bench.pipe.handlers[channel].closed(TOPIC)
    assert 1 == len(written(bench))


def test_what_waits_behind_the_first_refused_key_is_asked_for_too() -> None:
    """It was taken before anybody knew."""
    bench = Bench()
    submit(bench, "no", "a", "b", "c")
    bench.pipe.handlers[1].closed(TOPIC)
    assert [(1, "no"), (2, "c")] == written(bench)
    take(bench, 2)
    assert [(2, "a")] == written(bench)


def test_what_the_broker_has_taken_goes_past_what_it_was_not_asked_for(bench: Bench) -> None:
    """Messages of a known key go together over another channel; those that waited with it, too."""
    submit(bench, "yes", "no 1", "yes", "no 2", "yes")
    [(asks, _)] = written(bench)
    take(bench, asks)
    (together, key), asked = written(bench)
    assert (("yes", True), (asks, "no 1")) == ((key, asks != together), asked)
    take(bench, together)
    later = submit(bench, *["yes"] * 20)
    assert [(together, "yes")] * 21 == written(bench)
    bench.pipe.handlers[together].acked(0, multiple=True)
    assert [CONFIRMED] * 20 == verdicts(later)


def test_what_was_returned_was_no_matter_of_permission(bench: Bench) -> None:
    """Its key is known from then on."""
    first = submit(bench, "nowhere")
    [(asks, _)] = written(bench)
    bench.pipe.handlers[asks].returned(first.claims[0].id, ReplyReason(312, "NO_ROUTE"))
    take(bench, asks)
    submit(bench, "nowhere")
    [(channel, _)] = written(bench)
    assert asks != channel


def test_a_key_that_is_refused_later_is_known_no_more(bench: Bench) -> None:
    """Permissions change."""
    submit(bench, "yes")
    [(asks, _)] = written(bench)
    take(bench, asks)
    submit(bench, "yes")
    [(together, _)] = written(bench)
    bench.pipe.handlers[together].closed(TOPIC)
    assert [REFUSED] == verdicts(submit(bench, "yes"))
    assert [] == written(bench)
    bench.ahead += REMEMBERED
    submit(bench, "other")
    bench.pipe.handlers[written(bench)[0][0]].closed(TOPIC)
    submit(bench, "yes")
    assert [(asks, "yes")] == written(bench)


def test_another_exchange_is_as_before(bench: Bench) -> None:
    """Refusals of one say nothing of another, and other refusals nothing of keys."""
    submit(bench, "no", "no", exchange="y")
    [(channel, _)] = written(bench)
    bench.pipe.handlers[channel].closed(ANOTHER)
    [(channel, _)] = written(bench)
    take(bench, channel)
    submit(bench, "a", "b", "no", exchange="y")
    assert [(channel, "a"), (channel, "b"), (channel, "no")] == written(bench)


def test_all_is_as_before_when_nothing_was_refused_for_a_while(bench: Bench) -> None:
    """The relay notices by itself that permissions were granted."""
    bench.ahead += REMEMBERED
    submit(bench, "a", "b", "no")
    [(channel, _)] = written(bench)
    take(bench, channel)
    assert [(channel, "b"), (channel, "no")] == written(bench)


def test_what_waits_to_be_asked_for_is_silent(bench: Bench) -> None:
    """Since it was claimed, although the broker answers each second."""
    submit(bench, *(f"no {number}" for number in range(9)))
    for _ in range(3):
        bench.ahead += 1.0
        bench.pipe.handlers[written(bench)[0][0]].closed(TOPIC)
    assert {"x": 3.0} == pytest.approx(bench.pool.silent())


def test_what_could_never_be_sent_keeps_its_own_end(bench: Bench) -> None:
    """Its options are too long, which no permission changes."""
    job = bench.submit(batch([claim("x", "no", options=f'{{"type": "{"y" * 256}"}}')]))
    assert job.results[0] is not None
    assert "option_too_long" == job.results[0].code


def test_keys_do_not_pile_up() -> None:
    """Rows may name any number of them: those that were met last are known."""
    known = RefusedKeys(lambda: 0.0)
    claims = [claim("x", f"no {number}") for number in range(MAX_KEYS + 1)]
    for one in claims:
        known.learn(one, TOPIC)
    assert [True, False] == [known.refusal(one) is None for one in claims[:2]]
    known.took(claim("x", f"yes {number}") for number in range(MAX_KEYS + 1))
    assert [True, False] == [known.is_open(claim("x", key)) for key in ("yes 0", "yes 1")]
