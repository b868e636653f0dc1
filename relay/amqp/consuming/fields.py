"""The properties in a message's header, read without loss; no I/O.

pamqp divides timestamps above 2^32 by 1000, because it takes them for milliseconds, and raises if the result is after the year 9999.
This module keeps the number that was sent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from relay.codec.option_rules import TIMESTAMP_LIMIT

_CONTENT: Final = 12
"""Bytes of a content header before its flags: class, weight, size of the body (AMQP 0-9-1, 2.3.5.2)."""
_TIME: Final = struct.Struct(">Q")
_NUMBERS: Final = {
    tag: struct.Struct(code)
    for tag, code in {
        "t": ">?", "b": ">b", "B": ">B", "U": ">h", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">q", "f": ">f", "d": ">d",
    }.items()
}  # fmt: skip
"""Field types of fixed length, as RabbitMQ reads them ("AMQP 0-9-1 Errata", 3)."""


class _Reader:
    """Reads bytes in order; raises if fewer bytes are left than requested."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def is_through(self) -> bool:
        """Whether nothing is left."""
        return self._at >= len(self._data)

    def octets(self, size: int) -> bytes:
        """The next bytes."""
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise ValueError("the properties end too early")
        self._at += size
        return taken

    def number(self, form: struct.Struct) -> Any:
        """The next number."""
        return form.unpack(self.octets(form.size))[0]

    def short(self) -> str:
        """A short string."""
        return self.octets(self.octets(1)[0]).decode()

    def long(self) -> bytes:
        """A long string: its length in four bytes, then its bytes."""
        return self.octets(int.from_bytes(self.octets(4), "big"))

    def flags(self) -> int:
        """The property flags. The last of 16 bits says that more flags follow; AMQP defines no further flags."""
        first = flags = int.from_bytes(self.octets(2), "big")
        while flags & 1:
            flags = int.from_bytes(self.octets(2), "big")
        return first


def _table(data: bytes) -> dict[str, Any]:
    reader, table = _Reader(data), {}
    while not reader.is_through:
        name = reader.short()
        table[name] = _value(reader)
    return table


def _array(data: bytes) -> list[Any]:
    reader, values = _Reader(data), []
    while not reader.is_through:
        values.append(_value(reader))
    return values


def _value(reader: _Reader) -> Any:
    tag = chr(reader.octets(1)[0])
    if form := _NUMBERS.get(tag):
        return reader.number(form)
    if read := _OTHERS.get(tag):
        return read(reader)
    raise ValueError("a header has an unknown type")


def _text(octets: bytes) -> str | bytes:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


def _moment(reader: _Reader) -> datetime | int:
    """A number of seconds since 1970 as a datetime. A time after the year 9999 stays a number, as in a timestamp in milliseconds."""
    seconds = reader.number(_TIME)
    return datetime.fromtimestamp(seconds, UTC) if seconds <= TIMESTAMP_LIMIT else int(seconds)


def _decimal(reader: _Reader) -> Decimal:
    scale, digits = reader.octets(1)[0], int.from_bytes(reader.octets(4), "big")
    return Decimal(digits).scaleb(-scale)


_OTHERS: Final[Mapping[str, Callable[[_Reader], Any]]] = {
    "S": lambda reader: _text(reader.long()),
    "x": lambda reader: reader.long(),
    "A": lambda reader: _array(reader.long()),
    "F": lambda reader: _table(reader.long()),
    "T": _moment,
    "D": _decimal,
    "V": lambda _: None,
    "\0": lambda _: None,
}
_PROPERTIES: Final[tuple[tuple[str, Callable[[_Reader], Any]], ...]] = (
    ("content_type", _Reader.short),
    ("content_encoding", _Reader.short),
    ("headers", lambda reader: _table(reader.long())),
    ("delivery_mode", lambda reader: reader.octets(1)[0]),
    ("priority", lambda reader: reader.octets(1)[0]),
    ("correlation_id", _Reader.short),
    ("reply_to", _Reader.short),
    ("expiration", _Reader.short),
    ("message_id", _Reader.short),
    ("timestamp", lambda reader: reader.number(_TIME)),
    ("type", _Reader.short),
    ("user_id", _Reader.short),
    ("app_id", _Reader.short),
)
"""The properties in their order on the wire, which is the order of their flags, from the highest bit down."""


def properties(header: bytes) -> dict[str, Any]:
    """The properties by their AMQP names, with `_` for `-`; None for properties that are not set.

    A time in a header becomes a datetime; after the year 9999, a number. A decimal becomes a `Decimal`; a string that is not
    UTF-8 becomes bytes. The property `timestamp` is the number that was sent.

    Args:
        header: payload of a content header frame.

    Raises:
        Exception: the properties cannot be read; the broker passes on whatever a client sends.
    """
    reader = _Reader(header, _CONTENT)
    flags = reader.flags()
    return {name: read(reader) if flags & (1 << 15 >> place) else None for place, (name, read) in enumerate(_PROPERTIES)}
