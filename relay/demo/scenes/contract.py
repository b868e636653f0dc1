"""A message contract: a pydantic model defines an order, and a message that breaks the contract becomes dead, with the reason."""

from __future__ import annotations

from typing import Annotated, Final

from psycopg.types.json import Jsonb
from pydantic import Field

from relay.client import OutboxModel
from relay.demo.scenes.audience import EXCHANGE
from relay.demo.scenes.stage import Check, Stage

_KEY: Final = "order.checked"


class Order(OutboxModel, exchange=EXCHANGE, routing_key=_KEY):
    """The model of every message with this routing key."""

    customer: str
    total: Annotated[float, Field(gt=0)]


async def prepare(stage: Stage) -> None:
    """Add the contract."""
    words = ("contract", "add", EXCHANGE, _KEY, f"{__name__}:{Order.__name__}", "--mode", "enforce")
    await stage.sidecars.command(*words)
    stage.say(f"relay {' '.join(words)}")


async def play(stage: Stage) -> list[Check]:
    """Insert a valid order and an invalid one by SQL, as an application in any language can."""
    contents = ({"customer": "ann", "total": 9.5}, {"customer": "bob", "total": -1})
    rows = [("scene_insert", {"exchange": EXCHANGE, "routing_key": _KEY, "content": Jsonb(content)}) for content in contents]
    ids = [str(row[0]) for row in await stage.commit(*rows) if row]
    good, bad = [await stage.ending(id_) for id_ in ids]
    await stage.audience.seen(_KEY)
    stage.say(f"contract: {bad.detail}")
    kept_back = (bad.result, bad.code) == ("rejected", "contract_violated")
    return [
        Check(f"contract: a message that meets it is {good.result}, and delivered", len(stage.audience.of(_KEY)), 1),
        Check(f"contract: a message that breaks it is {bad.result}, {bad.code}", int(kept_back), 1),
    ]
