"""Texts that PostgreSQL's hash does not distinguish, as anybody can compute them: `hash_bytes` (src/common/hashfn.c) has no seed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt

BLOCK = 12
"""Bytes that the hash takes at a time, as three numbers."""
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", np.uint8)
_BEGIN = np.uint32((0x9E3779B9 + 2 * BLOCK + 3923095) & 0xFFFFFFFF)
_ALIKE = np.frombuffer(bytes(range(0x20, 0x20 + BLOCK)), np.uint32)
"""The state in which every text of two blocks is after its second one, before that is mixed."""
_TRIED = 1 << 20


def texts_of_one_hash(count: int) -> list[str]:
    """So many different texts of 24 ASCII characters, control characters among them; `hashtext` is the same for all."""
    return [*islice(_found(), count)]


def _found() -> Iterator[str]:
    chance = np.random.default_rng(1)
    while True:
        firsts = chance.choice(_LETTERS, (_TRIED, BLOCK))
        seconds = (_ALIKE - _mixed(firsts.view(np.uint32) + _BEGIN)).view(np.uint8)
        texts = ((seconds > 0) & (seconds < 0x80)).all(axis=1)
        for first, second in zip(firsts[texts], seconds[texts], strict=True):
            yield (first.tobytes() + second.tobytes()).decode("ascii")


def _mixed(state: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The states after a block: the macro `mix` of hashfn.c."""
    a, b, c = state.T.copy()
    for bits in (4, 6, 8, 16, 19, 4):
        a = (a - c) ^ (c << np.uint32(bits) | c >> np.uint32(32 - bits))
        c = c + b
        a, b, c = b, c, a
    return np.stack([a, b, c], axis=1)
