"""What a compiled schema may take: memory and time are bounded for each schema and for all together, whatever its regular expressions."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from relay.contracts import registry
from relay.contracts.enforcing_encoder import EnforcingEncoder
from relay.contracts.registry import Contracts, quick_breaches
from relay.contracts.schema import Schema, SchemaError, compiled
from relay.events.contracts import ContractUnusable
from tests.support.broker.publishing import Seen, claim
from tests.support.fakes.contract_gates import gate, refusal, row

pytestmark = pytest.mark.ids("A37")
MIB: Final = 1 << 20
LARGE: Final = r"\p{L}{100}"
"""Takes 5 MiB."""
LOOKS: Final = "".join(rf"(?=\p{{L}}{{{40 + n}}})" for n in range(50))
"""Fifty pieces of some MiB each."""
PLACES: Final[dict[str, Any]] = {
    "pattern": {"allOf": [{"pattern": f"{LARGE}{n}"} for n in range(5500)]},
    "patternProperties": {"patternProperties": {f"{LARGE}{n}": True for n in range(5500)}},
    "definitions": {
        "$defs": {f"d{n}": {"pattern": f"{LARGE}{n}"} for n in range(2500)},
        "allOf": [{"$ref": f"#/$defs/d{n}"} for n in range(2500)],
    },
    "unknown keyword": {"x": [{"pattern": f"{LARGE}{n}"} for n in range(2500)], "allOf": [{"$ref": f"#/x/{n}"} for n in range(2500)]},
    "look-around": {"allOf": [{"pattern": f"{LOOKS}{n}"} for n in range(300)]},
    "small ones": {"allOf": [{"pattern": f"a{n}"} for n in range(9000)]},
}
SHAPES: Final[dict[str, Callable[[int], Any]]] = {
    "large class": lambda n: {"pattern": rf"\p{{L}}{{18}}{n}"},
    "small": lambda n: {"pattern": f"^a{n}$"},
    "word": lambda n: {"pattern": f"^\\w{{1,64}}{n}$"},
    "dots": lambda n: {"pattern": f"^.{{1,200}}{n}"},
    "look-around": lambda n: {"pattern": r"(?=\p{L}{10})" * 3 + str(n)},
    "alternatives": lambda n: {"pattern": "(?i)" + "|".join(f"some{n}y{m}" for m in range(30))},
    "names": lambda n: {"patternProperties": {f"^\\S+{n}": True}, "additionalProperties": False},
    "properties": lambda n: {"type": "object", "properties": {f"k{n}": {"type": "integer"}}},
    "enum": lambda n: {"enum": [f"a{n}", n]},
    "true": lambda _: True,
    "not": lambda _: {"not": {}},
}
MEASURE: Final = """
import json, sys
from relay.contracts.schema import Schema
Schema({"pattern": "a"})
document = json.load(sys.stdin)
def taken(): return int(open("/proc/self/statm").read().split()[1]) * 4096
before = taken()
made = Schema(document)
print(taken() - before, made.size)
"""


@pytest.mark.parametrize("place", PLACES)
def test_a_schema_whose_expressions_take_gigabytes_is_refused_before_they_are_compiled(place: str) -> None:
    """Within a second or two, in one sentence that says what to write in their place."""
    document = PLACES[place]
    began = time.thread_time()
    with pytest.raises(
        SchemaError, match=r"^The schema takes more than 32 MiB of memory when it is compiled: write fewer or shorter"
    ) as refused:
        Schema(document)
    assert time.thread_time() - began < 3
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_schema_takes_more_memory_than_its_size_says(shape: str) -> None:
    """As many rules of a kind as are accepted, in a process of their own."""
    document = next(filter(_is_accepted, ({"allOf": [SHAPES[shape](n) for n in range(1 << power)]} for power in range(13, 0, -1))))
    output = subprocess.run([sys.executable, "-c", MEASURE], input=json.dumps(document), capture_output=True, text=True, check=True).stdout
    taken, size = map(int, output.split())
    assert taken < 1.5 * size + 8 * MIB, len(document["allOf"])


def _is_accepted(document: Any) -> bool:
    try:
        Schema(document)
    except SchemaError:
        return False
    return True


def test_a_schema_with_some_large_expressions_is_accepted() -> None:
    """Names of people, passwords and dates are what contracts are about."""
    patterns = [r"^[\p{L} .'-]{1,100}$", r"^\p{L}+$", r"(?=.*\d)(?=.*[a-z]).{8,64}", r"^\d{4}-\d{2}-\d{2}$", r"^[^\s]{1,255}$"]
    made = Schema({"properties": {f"p{n}_{m}": {"pattern": text} for n, text in enumerate(patterns) for m in range(50)}})
    assert made.size < 32 * MIB


def test_contracts_for_which_there_is_no_room_are_left_out_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older ones hold on, and nothing is compiled to be thrown away again but the first that is too many."""
    compilations = list[str]()

    def counted(text: str) -> Schema:
        compilations.append(text)
        return compiled(text)

    rows = [row({"maxLength": n, "title": "x" * 10_000}, key=f"k{9 - n}") for n in range(9)]
    monkeypatch.setattr(registry, "MAX_TOTAL", 3 * Schema(json.loads(rows[0].schema)).size + 1)
    held = Contracts(rows, compile_schema=counted)

    assert 3 == len(held)
    assert ["k9", "k8", "k7"] == [one.contract.routing_key for key in ("k9", "k8", "k7") for one in held.of("orders", key)]
    assert [one.routing_key for one in rows[3:]] == [one.contract.routing_key for one in held.unusable]
    assert {"Contracts that were added earlier fill the 512 MiB that a relay has for all contracts: remove some, or shorten them."} == {
        one.sentence for one in held.unusable
    }
    assert 4 == len(compilations)


async def test_everything_else_has_half_of_the_time_while_contracts_are_compiled() -> None:
    """After each one comes as long a rest, and the former contracts hold until the last one is there."""
    ticks, loop, seen = itertools.count(), asyncio.get_running_loop(), Seen()
    one = EnforcingEncoder(seen, clock=lambda: next(ticks) * 0.02)
    await one.load([row("false")])
    began = loop.time()
    loading = asyncio.create_task(one.load([row("true"), row(key="a"), row(key="b"), row("{", key="c")]))
    await asyncio.sleep(0)

    assert refusal(one, claim("orders", payload=b"1"))
    await loading
    assert loop.time() - began >= 4 * 0.02
    assert refusal(one, claim("orders", payload=b"1")) is None
    assert ["c"] == [event.routing_key for event in seen.of(ContractUnusable)]


def test_a_violation_of_a_large_schema_is_not_explained_inline() -> None:
    """An explanation compiles it once more for each of its levels: this one took 700 MB."""
    schema: dict[str, Any] = {"properties": {f"k{n}": {"type": "integer"} for n in range(5000)}, "type": "string"}
    for _ in range(50):
        schema = {"allOf": [schema]}
    one, _ = gate(row(schema), row({"type": "string"}, exchange="audit"))

    assert quick_breaches(one._contracts.of("orders", ""), b"1") is None
    assert [] == quick_breaches(one._contracts.of("orders", ""), b'""')
    assert ["type"] == [breach.violation.rule for breach in quick_breaches(one._contracts.of("audit", ""), b"1") or ()]
