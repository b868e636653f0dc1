"""Payloads too large to travel with their claim: fetched one by one once the lock stands, so that one which no memory holds is counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

from relay.errors import StoreError
from relay.message import Claim

LARGE = 4 << 20
"""Bytes that a message may take, at the most, for its payload to travel with the claim. An answer that the relay does not survive undoes
the claim: the lock does not stand, the attempt does not count, and the same claim comes again for ever."""
NO_MEMORY = "The relay has no memory for a payload: give it more, or lower RELAY_WINDOW_BYTES and, by `relay config set`, max_body_bytes."

Fetch = Callable[[Claim], Awaitable[bytes | None]]


class Completed(NamedTuple):
    """Claims with their payloads, those without, which are still locked, and why the first of these has none."""

    whole: list[Claim]
    missing: list[Claim]
    failure: StoreError | None


async def complete(claims: Sequence[Claim], left: Collection[int], fetch: Fetch) -> Completed:
    """Put in the payloads that were left behind, up to the first that cannot be had.

    Args:
        claims: as the claim statement returned them.
        left: which of them have no payload yet.
        fetch: reads one; None where the lock is not ours any more.

    """
    done = Completed([], [], None)
    for index, claim in enumerate(claims):
        if index not in left:
            done.whole.append(claim)
        elif done.failure:
            done.missing.append(claim)
        else:
            done = await _one(done, claim, fetch)
    return done


async def _one(done: Completed, claim: Claim, fetch: Fetch) -> Completed:
    try:
        payload = await fetch(claim)
    except (StoreError, MemoryError) as error:
        done.missing.append(claim)
        return done._replace(failure=error if isinstance(error, StoreError) else StoreError(NO_MEMORY))
    if payload is not None:
        done.whole.append(claim._replace(payload=payload))
    return done
