"""The encoder over the catalogue of bad and odd messages."""

from __future__ import annotations

import pytest

from relay.codec.encoder import Encoded, Encoder
from relay.message import PublishResult, Verdict
from tests.support.poison.catalogue import POISON, Poison


def _encoder(entry: Poison) -> Encoder:
    allowed = ["allowed.*"] if "allow_list" in entry.needs else None
    return Encoder(frame_max=131_072, max_body_bytes=16 << 20, allowed_exchanges=allowed)


def _stopped(entry: Poison) -> bool:
    return bool(entry.code) and entry.outcome in {"refused", "rejected"} and "publisher" not in entry.needs


SEEN = [entry for entry in POISON if entry.encodable and "heavy" not in entry.needs]
STOPPED = [entry for entry in SEEN if _stopped(entry)]
PASSED = [entry for entry in SEEN if not _stopped(entry) and entry.outcome != "refused"]


def test_the_catalogue_is_whole() -> None:
    """Every kind from 1 to 58 has an entry, and every entry one outcome with what that outcome needs."""
    assert set(range(1, 59)) == {entry.kind for entry in POISON}
    for entry in POISON:
        assert entry.outcome in {"refused", "rejected", "failed", "delivered"}, entry
        assert (entry.outcome == "refused") == bool(entry.sentence), entry
        assert entry.code or entry.outcome in {"refused", "delivered"}, entry
        assert not entry.expect or entry.outcome == "delivered", entry


@pytest.mark.parametrize("entry", STOPPED, ids=str)
def test_what_can_never_be_sent_is_stopped_with_its_code(entry: Poison) -> None:
    """What gets past the database's checks is INVALID with the documented code and a sentence fit for a log line."""
    result = _encoder(entry).encode(entry.claim("orders", "key"))

    assert isinstance(result, PublishResult)
    assert (Verdict.INVALID, entry.code) == (result.verdict, result.code)
    assert result.detail
    assert result.detail.isprintable()


@pytest.mark.parametrize("entry", PASSED, ids=str)
def test_what_the_broker_takes_or_judges_is_encoded(entry: Poison) -> None:
    """What is delivered, or refused by the broker alone, becomes frames."""
    assert isinstance(_encoder(entry).encode(entry.claim("orders", "key")), Encoded)
