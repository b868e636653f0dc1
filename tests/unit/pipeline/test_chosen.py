"""Which rows an erasure means, and what becomes of them; on batches of Arrow alone."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from relay.message import ERASED
from relay.pipeline.erase.chosen import ChosenMessages, Erasure, with_contents

A, B, C = (f"00000000-0000-0000-0000-00000000000{number}" for number in range(1, 4))
SCHEMA = pa.schema([
    ("id", pa.string()), ("exchange", pa.string()), ("content", pa.string()), ("body", pa.binary()), ("options", pa.string()),
    ("ordering_key", pa.string()), ("replay_of", pa.string()), ("error_detail", pa.string()), ("attempts", pa.int32()),
])  # fmt: skip
FULL = {"id": A, "exchange": "orders", "content": "[1]", "body": b"\x00", "options": "{}", "error_detail": "why", "attempts": 3}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    """Rows with these values, and those of a full row for the rest."""
    return pa.RecordBatch.from_pylist([{**FULL, **row} for row in rows], schema=SCHEMA)


ROWS = batch({"id": A}, {"id": B, "ordering_key": "k"}, {"id": C, "replay_of": A}, {"id": C, "replay_of": B}, {"id": B, "options": ERASED})
MEANT: dict[str, tuple[ChosenMessages, list[int], list[int]]] = {
    "an id, and its replays": (ChosenMessages.of([A], []), [0, 2], [0, 2]),
    "an id in another form": (ChosenMessages.of([A.replace("-", "").upper()], []), [0, 2], [0, 2]),
    "each message with the id, erased ones for the sake of their replays": (ChosenMessages.of([B], []), [1, 3, 4], [1, 3, 4]),
    "a key": (ChosenMessages.of([], ["k"]), [1], [1]),
    "a key, and replays of its message": (ChosenMessages.of([], ["k"]).with_origins([B]), [1, 3], [1]),
    "an id or a key": (ChosenMessages.of([A], ["k"]), [0, 1, 2], [0, 1, 2]),
    "no prefix": (ChosenMessages.of([], ["", "kk", "K"]), [], []),
}


@pytest.mark.parametrize("case", MEANT)
def test_which_rows_are_meant(case: str) -> None:
    """The named ones among them are those that need no other row; a task gets the same object."""
    chosen, rows, named = MEANT[case]
    chosen = pickle.loads(pickle.dumps(chosen))  # noqa: S301 - our own

    assert rows == [place for place, one in enumerate(chosen.rows(ROWS).to_pylist()) if one]
    assert named == [place for place, one in enumerate(chosen.named(ROWS).to_pylist()) if one]


def test_what_is_known_is_not_said_again() -> None:
    """Neither ids that were named, nor those that were found before."""
    chosen = ChosenMessages.of([A], ["k"])

    assert {B, C} == chosen.unknown([A, B, C])
    assert {C} == chosen.with_origins([B]).unknown([A, B, C])


def test_an_erased_row_keeps_everything_but_its_contents() -> None:
    """Exactly as PostgreSQL has it; a second time nothing changes, and a content without text stays without."""
    found = Erasure(ChosenMessages.of([A], []))(batch({"content": None}, {"id": B}, {"ordering_key": "k", "options": None}))

    gone = {"options": ERASED, "body": None, "ordering_key": None, "error_detail": None}
    assert found.equals(batch({"content": None, **gone}, {"id": B}, {"content": "{}", **gone}))
    assert [False, True, False] == with_contents(found).to_pylist()
    assert found is Erasure(ChosenMessages.of([A], []))(found)


def test_named_rows_can_be_left_to_later() -> None:
    """A message that loses its key no longer leads to its replays."""
    chosen = ChosenMessages.of([], ["k"]).with_origins([B])

    assert [False, False, False, True, True] == [text == ERASED for text in Erasure(chosen, only_found=True)(ROWS)["options"].to_pylist()]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_a_file_of_another_program_may_have_other_widths(kind: pa.DataType) -> None:
    """The values count."""
    names = ("id", "ordering_key", "replay_of", "options")
    other = pa.RecordBatch.from_arrays([ROWS.column(name).cast(kind) for name in names], names=list(names))

    chosen = ChosenMessages.of([A], ["k"])
    assert chosen.rows(ROWS).equals(chosen.rows(other))
    assert with_contents(ROWS).equals(with_contents(other))
