"""JSON numbers as PostgreSQL's jsonb writes them: with all their digits, and without an exponent."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Final

MOST_DIGITS: Final = 131_072
"""Most digits before the decimal point (PostgreSQL, "Arbitrary Precision Numbers")."""
MOST_DECIMALS: Final = 16_383
"""Most digits after the decimal point; PostgreSQL refuses JSON with more."""
PRINTED_LIMIT: Final = 65_536
"""Bytes that any content may have as text, however few bytes are stored for it (sql/0002_validity.sql)."""
PRINTED_TIMES: Final = 32
"""Bytes of text that a longer content may have for each stored byte."""
GROWTH: Final = 8
"""How much numbers may add to a text when written out, as a multiple of its length without blanks: PostgreSQL writes 26 MB a second."""
_EXPONENT: Final = re.compile(r"[0-9][eE][+-]?[0-9]")


def as_stored(text: str) -> str:
    """The JSON text; whole numbers that have an exponent become integers without exponents."""
    return json.dumps(json.loads(text, parse_float=_stored), ensure_ascii=False, separators=(",", ":")) if _has_exponents(text) else text


def check_printed(text: str, size: int, *, quick: bool = False) -> None:
    """Refuse a content of `size` bytes if the database would certainly refuse it, because its numbers written out make the text too long.

    With `quick`, also refuse a content that takes the database much longer to write out than to read.

    Raises:
        ValueError: one sentence.
    """
    if not _has_exponents(text):
        return
    added: list[int] = []
    json.loads(text, parse_float=lambda number: added.append(_digits(number)), parse_int=float, object_pairs_hook=len)
    printed = size + sum(added)
    # A stored number takes 16 bytes; in the given text it has at least two.
    most = size + GROWTH * (len(text) - sum(map(text.count, " \t\r\n"))) if quick else PRINTED_TIMES * (8 * size + 32)
    if printed > max(PRINTED_LIMIT, most):
        raise ValueError(f"content takes {size} bytes and {printed} with its numbers written out; write such numbers as strings")


def _has_exponents(text: str) -> bool:
    """Whether the text may contain a number with an exponent. A string that looks like one also matches."""
    return _EXPONENT.search(text) is not None


def _digits(number: str) -> int:
    """Digits of a number once it is written out."""
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
