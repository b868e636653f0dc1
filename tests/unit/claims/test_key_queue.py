"""Keys that scans find again and again leave turns and room to those that were never tried."""

from __future__ import annotations

from relay.claims.key_queue import KeyQueue

FOUND = [f"f{n}" for n in range(10)]
NEW = [f"n{n}" for n in range(10)]


def queue_of(most: int, *, found: int = 10, new: int = 10) -> KeyQueue:
    """Keys of which a scan has found some, and others that are new."""
    keys = KeyQueue(most)
    keys.ask(dict.fromkeys(FOUND[:found], 1), found=True)
    keys.ask(dict.fromkeys(NEW[:new], 1))
    return keys


def test_both_kinds_have_every_second_turn() -> None:
    """However few go at a time, and whichever there are more of."""
    keys = queue_of(100, new=2)

    assert [["f0"], ["n0"]] == [keys.first(1), keys.first(1)]
    assert [["f0", "n0", "f1", "n1", "f2"], ["n0", "f0", "n1", "f1"]] == [keys.first(5), keys.first(4)]
    keys.drop([*NEW, *FOUND[3:]])
    assert ["f0", "f1", "f2"] == keys.first(9)


def test_what_scans_find_takes_half_of_the_room() -> None:
    """The other half is for new keys, so that none of them is forgotten for one that is tried again."""
    keys = queue_of(8)

    assert (8, True, False) == (len(keys), keys.many_found, keys.many_new)
    assert [*FOUND[:4], *NEW[:4]] == sorted(keys.first(8))
    keys.drop(FOUND[:2])
    keys.ask({"late": 1}, found=True)
    assert ("late" in keys.first(8), keys.many_found) == (True, True)
    keys.drop(["late"])
    assert not keys.many_found


def test_many_new_keys_stop_no_scan() -> None:
    """A key whose wait is over is found, has room, and waits behind others of its kind alone."""
    keys = queue_of(8, found=0)

    assert (False, True, 6) == (keys.many_found, keys.many_new, len(keys))
    keys.ask({"waited": 1}, found=True)
    assert "waited" in {*keys.first(2), *keys.first(2)}


def test_a_key_is_asked_for_once() -> None:
    """In the line in which it is, with its newest lane; when it was taken, again once it is settled."""
    keys = queue_of(8, found=1, new=1)
    keys.ask({"f0": 2, "n0": 2})
    keys.ask({"n0": 3}, found=True)

    assert 2 == len(keys)
    keys.keep(lambda lane: lane == 2)
    assert ["f0"] == keys.first(9)
    keys.took("f0")
    keys.ask({"f0": 2}, found=True)
    assert (0, True, False) == (len(keys), keys.settled("f0"), keys.settled("f0"))
