"""What is said of the lake: one judgement over all states, which never says that all is there where something may be missing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from relay.cli.common.output import length
from relay.pipeline.lake.assessment import LakeRecord, judge
from relay.pipeline.report import summary
from tests.support.lake import reports

AGES = st.none() | st.floats(min_value=-10, max_value=1e8)
STATES = st.builds(
    LakeRecord,
    registered=st.booleans(),
    exported=st.booleans(),
    seen=st.booleans(),
    seen_seconds=AGES,
    problem=st.none() | st.text(min_size=1),
    lag_seconds=st.none() | st.floats(min_value=0, max_value=1e8),
    differing=st.integers(min_value=0, max_value=3),
)
ALL = "holds everything"


@given(STATES)
def test_all_is_said_to_be_there_only_where_nothing_speaks_against_it(state: LakeRecord) -> None:
    """Seen lately, nothing differs, nothing waits; whatever else is so. What was not seen lately is said to be unseen."""
    judged = judge(state, length)
    whole = state.exported and state.seen and not state.differing and state.lag_seconds == 0

    assert whole == (ALL in judged.words) == (judged.kind == "whole")
    assert (state.exported and not state.seen) == (judged.kind == "unseen")
    assert ("retention waits" in judged.words) == (judged.kind == "unseen" and state.registered)


@given(STATES)
def test_a_report_never_says_that_all_is_there_beside_what_is_missing(state: LakeRecord) -> None:
    """Its facts stand in one section, and say of the lake what `relay status` says."""
    report = reports.quiet()
    partitions = tuple(one for one in reports.busy().quality.partitions if (one.verdict != "differs") == (not state.differing))
    state = replace(state, differing=sum(one.verdict == "differs" for one in partitions))
    report = replace(report, quality=replace(reports.busy().quality, lake=state, partitions=partitions))
    words = [fact.words for fact in summary.facts(report)]

    whole = any(ALL in one for one in words)
    assert whole == (judge(state, length).kind == "whole")
    assert not (whole and any("missing in the lake" in one or "differs" in one for one in words))
