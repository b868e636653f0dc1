"""Which rows an erasure means, and what becomes of them; on batches of Arrow alone."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from relay.message import ERASED
from relay.pipeline.erase.chosen import ChosenMessages, with_contents
from relay.pipeline.id_places import IdPlaces

A, B, C, D = (f"00000000-0000-0000-0000-00000000000{number}" for number in range(1, 5))
SCHEMA = pa.schema([
    ("id", pa.string()), ("exchange", pa.string()), ("content", pa.string()), ("body", pa.binary()), ("options", pa.string()),
    ("result", pa.string()),
    ("ordering_key", pa.string()), ("replay_of", pa.string()), ("error_code", pa.string()), ("error_detail", pa.string()),
    ("attempts", pa.int32()), ("xid", pa.int64()), ("seq", pa.int64()),
])  # fmt: skip
FULL = {
    "id": A,
    "exchange": "orders",
    "result": "rejected",
    "content": "[1]",
    "body": b"\x00",
    "options": "{}",
    "error_detail": "why",
    "attempts": 3,
}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    """Rows with these values, and those of a full row for the rest; they are numbered from 1 on."""
    return pa.RecordBatch.from_pylist([{**FULL, "xid": 7, "seq": seq, **row} for seq, row in enumerate(rows, 1)], schema=SCHEMA)


ROWS = batch({"id": A}, {"id": B, "ordering_key": "k"}, {"id": C, "replay_of": A}, {"id": C, "replay_of": B}, {"id": B, "options": ERASED})
MEANT: dict[str, tuple[ChosenMessages, list[int]]] = {
    "an id, and its replays": (ChosenMessages.of([A], []), [0, 2]),
    "an id in another form": (ChosenMessages.of([A.replace("-", "").upper()], []), [0, 2]),
    "each message with the id, erased ones for the sake of their replays": (ChosenMessages.of([B], []), [1, 3, 4]),
    "a key": (ChosenMessages.of([], ["k"]), [1]),
    "an id or a key": (ChosenMessages.of([A], ["k"]), [0, 1, 2]),
    "no prefix": (ChosenMessages.of([], ["", "kk", "K"]), []),
    "a place": (ChosenMessages.of([f"{B}@7/5"], []), [4]),
    "no other place": (ChosenMessages.of([f"{B}@5/7", f"{A}@7/5", f"{C}@{1 << 64}/3"], []), []),
    "places, an id and a key": (ChosenMessages.of([f"{B}@7/5", f"{C}@7/4", A], ["k"]), [0, 1, 2, 3, 4]),
    "an id that others lead to": (ChosenMessages.of([A], []).following([B]), [0, 1, 2, 3, 4]),
    "a place, whatever leads to its id": (ChosenMessages.of([A, f"{B}@7/5"], []).following([B]), [0, 2, 4]),
}


@pytest.mark.parametrize("case", MEANT)
def test_which_rows_are_meant(case: str) -> None:
    """A task gets the same object."""
    chosen, rows = MEANT[case]
    chosen = pickle.loads(pickle.dumps(chosen))  # noqa: S301 - our own

    assert rows == [place for place, one in enumerate(chosen.mask(ROWS).to_pylist()) if one]


def test_what_chosen_rows_lead_to() -> None:
    """Replays of an id, and bundles; other error texts name no copy, nor does that of a dead message, which others write."""
    rows = batch(
        {"id": A},
        {"id": B, "replay_of": A},
        {"result": "discarded", "error_code": "bundled", "error_detail": f"sent within {C}"},
        *({"result": "discarded", "error_code": "bundled", "error_detail": text} for text in (None, "sent", f"sent within {C}, twice")),
        {"error_code": "bundled", "error_detail": f"sent within {D}"},
        {"error_code": "superseded", "error_detail": f"replaced by {A}"},
        {"id": C, "replay_of": C},
    )

    assert [B, C] == list(ChosenMessages.of([A], []).leads(rows))
    assert [C] == list(ChosenMessages.of([], ["k"]).leads(rows))


def test_an_id_is_shared_if_messages_at_two_places_have_it() -> None:
    """In one file or in several; the same row in another file is no second one, and neither is a replay that has kept the id."""
    here, there = IdPlaces(), IdPlaces()
    here.add(batch({"id": A}, {"id": B}, {"id": C}, {"id": C, "replay_of": B}, {"id": C}))
    there.add(batch({"id": A}, {"id": A, "replay_of": A}, {"id": B}))
    assert ([C], []) == (here.shared, there.shared)

    here.update(there)

    assert [B, C] == here.shared
    assert (1, 2, 2) == tuple(len(here.places[id_]) for id_ in (A, B, C))


def test_an_erased_row_keeps_everything_but_its_contents() -> None:
    """Exactly as PostgreSQL has it; a second time nothing changes, and a content without text stays without."""
    sent = {"result": "discarded", "error_code": "bundled", "xid": 8}
    chosen = ChosenMessages.of([A], [])
    found = chosen.erase(batch({"content": None}, {"id": B}, {"ordering_key": "k", "options": None, "error_code": "bundled"}, sent))

    gone = {"options": ERASED, "body": None, "ordering_key": None}
    nothing = {**gone, "error_detail": None}
    assert found.equals(
        batch(
            {"content": None, **nothing},
            {"id": B},
            {"content": "{}", "error_code": "bundled", **nothing},
            {**sent, "content": "{}", **gone},
        )
    )
    assert [False, True, False, False] == with_contents(found).to_pylist()
    assert found is chosen.erase(found)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_a_file_of_another_program_may_have_other_widths(kind: pa.DataType) -> None:
    """The values count."""
    names = ("id", "ordering_key", "replay_of", "options")
    other = pa.RecordBatch.from_arrays([ROWS.column(name).cast(kind) for name in names], names=list(names))

    chosen = ChosenMessages.of([A], ["k"])
    assert chosen.mask(ROWS).equals(chosen.mask(other))
    assert with_contents(ROWS).equals(with_contents(other))
