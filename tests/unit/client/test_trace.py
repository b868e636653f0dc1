"""The W3C trace context that messages take along."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

from relay.client import Message, Options
from relay.client.message import HEADERS_LIMIT
from relay.client.prepare import Trace
from relay.codec.trace_context import trace_headers
from tests.support.relays.traces import BAD_PARENTS, BAD_STATES, GOOD_PARENTS, GOOD_STATES, PARENT, STATE


@pytest.mark.parametrize("given", GOOD_PARENTS)
def test_a_trace_of_the_right_shape_is_taken(given: str) -> None:
    """As it was given."""
    assert {"traceparent": given} == trace_headers(given)


@pytest.mark.parametrize("given", BAD_PARENTS)
def test_whatever_else_is_left_out(given: str) -> None:
    """A trace breaks nothing, and a state without it is none."""
    assert {} == trace_headers(given, STATE)


@pytest.mark.parametrize("given", GOOD_STATES)
def test_a_state_goes_with_its_trace(given: str) -> None:
    """As it was given."""
    assert {"traceparent": PARENT, "tracestate": given} == trace_headers(PARENT, given)


@pytest.mark.parametrize("given", BAD_STATES)
def test_a_state_of_the_wrong_shape_is_left_out_alone(given: str) -> None:
    """The trace goes without it."""
    assert {"traceparent": PARENT} == trace_headers(PARENT, given)


@pytest.fixture
def span() -> Iterator[SpanContext]:
    """A current span of OpenTelemetry's."""
    made = SpanContext(
        0x0AF7651916CD43DD8448EB211C80319C,
        0xB7AD6B7169203331,
        is_remote=False,
        trace_flags=TraceFlags(1),
        trace_state=TraceState([("a", "1")]),
    )
    token = context.attach(set_span_in_context(NonRecordingSpan(made)))
    yield made
    context.detach(token)


def test_the_current_span_is_taken_by_itself(span: SpanContext) -> None:
    """An argument goes before it, unless that is malformed."""
    own = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}

    assert own == trace_headers()
    assert own == trace_headers("malformed", STATE)
    assert {"traceparent": GOOD_PARENTS[1]} == trace_headers(GOOD_PARENTS[1])


def test_a_span_of_a_real_tracer_is_taken() -> None:
    """With the ids that the tracer gave it."""
    with TracerProvider().get_tracer("test").start_as_current_span("business") as made:
        given = made.get_span_context()
        assert (
            trace_headers()["traceparent"]
            == f"00-{trace.format_trace_id(given.trace_id)}-{trace.format_span_id(given.span_id)}-{given.trace_flags:02x}"
        )


def test_without_a_span_there_is_no_trace() -> None:
    """Also where the package is imported."""
    assert {} == trace_headers()


@pytest.mark.parametrize("broken", [ModuleType("opentelemetry.trace"), None])
def test_a_package_that_is_missing_or_broken_breaks_nothing(monkeypatch: pytest.MonkeyPatch, broken: ModuleType | None) -> None:
    """Whatever it raises."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", broken)

    assert {} == trace_headers()


def test_the_package_is_not_imported_for_it() -> None:
    """Where the application has not imported it, there is no span."""
    code = (
        "import sys; from relay.client import Message; from relay.client.prepare import Trace, prepare; "
        "prepare(Message(exchange='e'), Trace(), None); "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    assert "[]\n" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_other_options_and_headers_stay() -> None:
    """The trace is added to them, and the message is otherwise the same."""
    message = Message(exchange="e", content={"n": 1}, options=Options(priority=3, headers={"tenant": "a"}))
    traced = Trace(PARENT, STATE).add_to(message)

    assert {"priority": 3, "headers": {"tenant": "a", "traceparent": PARENT, "tracestate": STATE}} == traced.options.given()
    assert (message.id, message.content_text, message.exchange) == (traced.id, traced.content_text, traced.exchange)
    assert {"headers": {"traceparent": PARENT}} == Trace(PARENT).add_to(Message(exchange="e")).options.given()


@pytest.mark.parametrize("own", [{"traceparent": "mine"}, {"tracestate": "mine"}])
def test_what_the_application_put_there_itself_stays(own: dict[str, str]) -> None:
    """Whatever it is: nothing is added, so that no state goes with another trace."""
    message = Message(exchange="e", options={"headers": own})  # type: ignore[arg-type]

    assert own == Trace(PARENT, STATE).add_to(message).options.headers


def test_where_headers_would_be_too_large_the_trace_is_left_out() -> None:
    """The message goes without it."""
    message = Message(exchange="e", options=Options(headers={"a": "x" * (HEADERS_LIMIT - 10)}))

    assert message is Trace(PARENT).add_to(message)
