"""The W3C trace context that a message carries from its INSERT on. No function here raises: a trace must not break a transaction.

`sql/0002_validity.sql` has the same pattern; there a plain INSERT takes the context from `SET LOCAL relay.traceparent`.
"""

from __future__ import annotations

import re
import sys
from typing import Final

TRACE_HEADERS: Final = ("traceparent", "tracestate")
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_MEMBER: Final = re.compile(r"([a-z0-9][a-z0-9_*/-]*(?:@[a-z][a-z0-9_*/-]*)?)=([ -+.-<>-~-]*[!-+.-<>-~-])", re.ASCII)
_STATE_LIMIT: Final = 512
_MEMBERS_LIMIT: Final = 32
_PART_LIMIT: Final = 256


def trace_headers(traceparent: str | None = None, tracestate: str | None = None) -> dict[str, str]:
    """Headers of the given trace, or otherwise of OpenTelemetry's current span; empty without either.

    A value that does not have the W3C's form counts as not given.
    """
    if not _is_traceparent(traceparent):
        traceparent, tracestate = _current()
    if not _is_traceparent(traceparent):
        return {}
    return {"traceparent": str(traceparent)} | ({"tracestate": str(tracestate)} if _is_tracestate(tracestate) else {})


def _is_traceparent(text: object) -> bool:
    return isinstance(text, str) and _TRACEPARENT.fullmatch(text) is not None


def _is_tracestate(text: object) -> bool:
    if not isinstance(text, str) or len(text) > _STATE_LIMIT:
        return False
    found = [_MEMBER.fullmatch(member) for part in text.split(",") if (member := part.strip(" \t"))]
    pairs = [match.groups() for match in found if match]
    return (
        0 < len(found) == len(pairs) == len({key for key, _ in pairs}) <= _MEMBERS_LIMIT
        and max(len(part) for pair in pairs for part in pair) <= _PART_LIMIT
    )


def _current() -> tuple[str | None, str | None]:
    """The context of OpenTelemetry's current span, if the application has imported that package."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None, None
    try:
        span = api.get_current_span().get_span_context()
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags & 0xFF:02x}", span.trace_state.to_header()
    except Exception:  # noqa: BLE001 - whatever another library does, the message goes without its trace
        return None, None
