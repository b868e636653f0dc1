"""A payload and a password that must come out nowhere, and who looks for them in a text.

As they are, in any case, in hexadecimal or decimal codes, in base64, and escaped in any usual way.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

PAYLOAD = "c4narypayload7f3e"
PASSWORD = "c4narypassword9d1b"
_SHOWN = 20_000
"""Letters of a text that a failure shows."""
_CODES = {
    "hexadecimal": ("{:02x}", r"(?:[\s,:;\\']*(?:0x|u00|u\{{0,1}}|&#x|x|%)?)"),
    "octal": ("{:03o}", r"[\s,:;\\'0o]+"),
    "decimal": ("{:d}", r"[\s,:;\\&#'\[\]()]+"),
}
"""By name: how a byte is written, and what may stand between two of them: in a dump, an escape of some language, a list, a page."""


def silent(*told: str) -> None:
    """Neither canary is in any of it, in whatever form."""
    for text in told:
        found = {canary: forms for canary in (PAYLOAD, PASSWORD) if (forms := traces(canary, text))}
        assert not found, f"{found} in {text[:_SHOWN]}"


def traces(secret: str, text: str) -> list[str]:
    """The forms in which an ASCII secret appears in a text, none if it does not; lines may be broken anywhere in it."""
    return [form for form, pattern in _patterns(secret) if re.search(pattern, text, re.IGNORECASE if form != "base64" else 0)]


def _patterns(secret: str) -> Iterator[tuple[str, str]]:
    yield "plain", r"(?:\s|\\n)*".join(map(re.escape, secret))
    yield "reversed", re.escape(secret[::-1])
    for form, (written, between) in _CODES.items():
        yield form, between.join(written.format(byte) for byte in secret.encode())
    for before in range(3):
        yield "base64", r"(?:\s|\\n)*".join(map(_either_alphabet, _inner(secret.encode(), before)))


def _inner(secret: bytes, before: int) -> str:
    """The letters of base64 that are the secret's alone where so many bytes stand before it."""
    letters = base64.b64encode(bytes(before) + secret).decode().rstrip("=")
    first, last = -(-before * 4 // 3), (before + len(secret)) * 4 // 3
    return letters[first:last]


def _either_alphabet(letter: str) -> str:
    return {"+": r"[+-]", "/": r"[/_]"}.get(letter, letter)
