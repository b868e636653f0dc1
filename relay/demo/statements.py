"""The SQL of the example shop and of its observer: one statement per file of `relay/demo/queries`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> bytes:
    """The statement of `queries/<name>.sql`."""
    return (files("relay.demo") / "queries" / f"{name}.sql").read_bytes()
