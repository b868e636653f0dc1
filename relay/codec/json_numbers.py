"""Numbers in JSON as PostgreSQL's jsonb writes them: with all their digits, and without an exponent."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Final

MOST_DIGITS: Final = 131_072
"""Before the point (PostgreSQL, "Arbitrary Precision Numbers")."""
MOST_DECIMALS: Final = 16_383
"""Behind it; JSON with more is refused."""
PRINTED_LIMIT: Final = 65_536
"""Bytes that a content may have as text, however little it takes (sql/0002_validity.sql)."""
PRINTED_TIMES: Final = 32
"""How many times as long as it takes a longer one may be."""
_EXPONENT: Final = re.compile(r"[0-9][eE][+-]?[0-9]")


def as_stored(text: str) -> str:
    """JSON with whole numbers as integers, also those that were written with an exponent."""
    return json.dumps(json.loads(text, parse_float=_stored), ensure_ascii=False, separators=(",", ":")) if _has_exponents(text) else text


def check_printed(text: str, size: int) -> None:
    """Refuse a content of so many bytes if the database certainly would: for what it takes it is too long with its numbers written out.

    Raises:
        ValueError: one sentence.
    """
    if not _has_exponents(text):
        return
    added: list[int] = []
    json.loads(text, parse_float=lambda number: added.append(_digits(number)), parse_int=float, object_pairs_hook=len)
    printed = size + sum(added)
    # A number takes 16 bytes, and two at the least as it was given.
    if printed > max(PRINTED_LIMIT, PRINTED_TIMES * (8 * size + 32)):
        raise ValueError(f"content takes {size} bytes and {printed} with its numbers written out; write such numbers as strings")


def _has_exponents(text: str) -> bool:
    """Whether there may be any; in a string it is none."""
    return _EXPONENT.search(text) is not None


def _digits(number: str) -> int:
    """Digits of a number that is written out."""
    try:
        value = Decimal(number)
    except InvalidOperation:
        value = Decimal("Infinity")
    if not value.is_finite() or (value and value.adjusted() >= MOST_DIGITS):
        raise ValueError(f"content holds a number of more than {MOST_DIGITS} digits, which PostgreSQL cannot store; write it as a string")
    decimals = max(0, -_exponent(value))
    if decimals > MOST_DECIMALS:
        raise ValueError(f"content holds a number of {decimals} decimals, and PostgreSQL stores {MOST_DECIMALS}; write it as a string")
    return (max(0, value.adjusted()) if value else 0) + decimals


def _stored(number: str) -> int | float:
    try:
        value = Decimal(number)
    except InvalidOperation:
        return float(number)
    return int(value) if 0 <= _exponent(value) and value.adjusted() < MOST_DIGITS else float(number)


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent
