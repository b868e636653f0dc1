"""Turns errors of files, object stores and the table library into one sentence."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import DeltaError

from relay.errors import DamagedError, LakeError, PipelineError, UnreachableError

if TYPE_CHECKING:
    from relay.pipeline.lake.location import LakeLocation

_IN_STORES: tuple[tuple[str, type[PipelineError], str], ...] = (
    (
        r"(?i)no_?such_?bucket|bucket '[^']*' not found",
        LakeError,
        "The bucket of {url} does not exist: make it, or correct RELAY_LAKE_URL",
    ),
    (
        r"URL scheme is not allowed",
        LakeError,
        'The endpoint of {url} is http://: give an https:// one, or add "AWS_ALLOW_HTTP": "true" to RELAY_LAKE_OPTIONS',
    ),
    (
        (
            r"(?i)error sending request|connection (refused|reset|closed)|network_connection|timed? ?out|dns error|resolve host"
            r"|internal_?(failure|error)|slow_?down|service_?unavailable|\b(429|50[0234]) [a-z]|status 50[0234]"
        ),
        UnreachableError,
        "The object store of {url} does not answer: check that it runs, and the endpoint in RELAY_LAKE_OPTIONS",
    ),
)
"""The meaning of the libraries' error texts; if several patterns match, the first one counts."""
_DAMAGED = "{file} of {place} is missing or damaged: put it back from a copy, or correct {setting}"
_ANYWHERE: tuple[tuple[str, type[PipelineError], str], ...] = (
    (
        (
            r"(?i)access[ _]?denied|forbidden|permission|unauthorized|privileges|\b40[13] [a-z]|status 40[13]"
            r"|invalid_?access_?key|signature_?does_?not_?match|(expired|invalid)_?token"
        ),
        LakeError,
        "The lake {url} refuses access: correct RELAY_LAKE_OPTIONS or the permissions there",
    ),
    (r"(?i)no space left|quota", LakeError, "There is no space left for the lake {url}: make room and run this again"),
    (
        (
            r"(?i)not found|no such (file|key)|no_?such_?key|not a parquet|magic bytes|parquet error|requested range|corrupt"
            r"|page integrity|thrift|decompress"
        ),
        LakeError,
        _DAMAGED,
    ),
)
_PLACES = r"https?://\S+|\bpath \S+|\S+\.(parquet|json)\b"
"""Names of places and files. They are ignored, because their letters and digits say nothing about the cause of an error."""
_COLOURS = r"\x1b\[[0-9;]*m"
_ANSWER = r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?"
"""The code and the message in an object store's response; the rest of the response may contain keys."""
_HIDDEN = r"(?i)(://)[^/@\s]*@|((?:secret|password|token|signature|credential|access_key)[^=:\s]*\s*[=:]\s*)\S+"
_HELD_BACK = r"(?i)key|secret|password|token|account|credential"


@contextmanager
def sentences(place: LakeLocation) -> Iterator[None]:
    """Turn errors of files, object stores and the table library into one sentence.

    Raises:
        UnreachableError: the object store does not answer.
        LakeError: anything else.
    """
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise sentence(error, place) from error


@contextmanager
def decoding(place: LakeLocation, path: str) -> Iterator[None]:
    """Turn errors of decoding a file's bytes into one sentence that names the file.

    Errors of reading the bytes must already be sentences.

    Raises:
        DamagedError: the bytes are not those that were written.
        LakeError: there is not enough memory for the bytes.
    """
    try:
        yield
    except pa.ArrowMemoryError as error:
        raise sentence(error, place) from error
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise damaged(error, place, path) from error


def damaged(error: Exception, place: LakeLocation, path: str) -> DamagedError:
    """The error of a file that is missing or cannot be decoded. Its one sentence names the file by its path in the lake's file system."""
    return DamagedError(_said(_DAMAGED.format(**_names(path, place)), error, place))


def sentence(error: Exception, place: LakeLocation) -> PipelineError:
    """The error as one sentence that says what to do; text that could be a secret is left out."""
    kind, advice = _judged(error, _line(error), place)
    return kind(_said(advice, error, place))


def _said(advice: str, error: Exception, place: LakeLocation) -> str:
    return f"{advice} ({_words(_line(error), place) or type(error).__name__})."


def _line(error: Exception) -> str:
    return " ".join(re.sub(_COLOURS, "", str(error)).split())


def _judged(error: Exception, line: str, place: LakeLocation) -> tuple[type[PipelineError], str]:
    """The kind of the error, and what to do about it."""
    if isinstance(error, OSError) and (known := _of_errno(error.errno, place.url)):
        return LakeError, known
    said = re.sub(_PLACES, "", line)
    for pattern, kind, advice in (*(() if place.is_local else _IN_STORES), *_ANYWHERE):
        if re.search(pattern, said):
            return kind, advice.format(url=place.url, **_names(line, place))
    return LakeError, f"The lake {place.url} cannot be used: check RELAY_LAKE_URL and RELAY_LAKE_OPTIONS"


def _names(text: str, place: LakeLocation) -> dict[str, str]:
    """How the sentence about a damaged file names the file (by its name, if the text contains one), its place and its setting."""
    root = place.path(place.url)
    found = re.search(rf"{re.escape(root)}/(.+?(?:\.[a-z]+)+)\b", text)
    file = f"The file {found[1]}" if found else f"The file {text}" if text == root else "A file"
    return {"file": file, "place": place.name, "setting": place.setting}


def _of_errno(number: int | None, url: str) -> str | None:
    if number in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return f"There is no space left for the lake {url}: make room and run this again"
    if number in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"The lake {url} cannot be written or read: give this user the permission"
    return None


def _words(line: str, place: LakeLocation) -> str:
    """The part of the library's or the store's text that says what happened; text that could be a secret is left out."""
    said = re.search(_ANSWER, line)
    words = ": ".join(filter(None, said.groups())) if said else ": ".join(line.split(" \u21b3 ")[-2:])
    for name, value in place.options.items():
        if value and re.search(_HELD_BACK, name):
            words = words.replace(value, "***")
    return re.sub(_HIDDEN, lambda found: (found[1] or found[2] or "") + "***", words)[:400].rstrip(". ")
