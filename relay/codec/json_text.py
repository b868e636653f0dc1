"""JSON that PostgreSQL accepts, and error sentences for JSON that it refuses; no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

_NOT_UTF8: Final = "content holds text that is not valid UTF-8; escape it or leave it out"
_ESCAPE: Final = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]|(u[dD][89a-fA-F])|.)", re.DOTALL)
"""Matches an escape in JSON. A lone half of a surrogate pair is captured as a group."""
MOST_COMPARED: Final = 8_000_000_000
"""Limit of the bytes that PostgreSQL may compare to sort the names of an object for `jsonb`; such a sort takes 0.3 s (PostgreSQL 15). If
the names come in a malicious order, PostgreSQL compares each name with a twelfth of all names, and the sort cannot be cancelled."""
COMPARISON: Final = 32
"""Fixed cost of one comparison, counted as this many bytes in addition to the bytes of the names."""
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def json_text(value: Any, name: str) -> str:
    """JSON text that PostgreSQL accepts, without NaN, NUL or half a surrogate pair; ValueError with a sentence if that is impossible."""
    text = _quick_text(value)
    if text is None:
        text = _exact_text(value, name)
    check_nul(text, name)
    return text


def _quick_text(value: Any) -> str | None:
    """JSON text in a tenth of the time of `_exact_text`. None if something may be wrong, in which case `_exact_text` must be called."""
    try:
        text = to_json(value, inf_nan_mode="constants").decode()
    except (ValueError, TypeError, RecursionError):
        return None
    return None if "NaN" in text or "Infinity" in text else text


def _exact_text(value: Any, name: str) -> str:
    try:
        text = json.dumps(to_jsonable_python(value, inf_nan_mode="constants"), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds text that is not valid UTF-8; escape it or leave it out") from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deep or holds itself") from None
    except (PydanticSerializationError, ValueError, TypeError) as error:
        raise ValueError(f"{name} is not JSON: {str(error).splitlines()[0].rstrip('.')}") from None
    return text


def check_json(text: str) -> None:
    """Raise ValueError with a sentence if the text is not JSON that PostgreSQL accepts."""
    try:
        walk_json(text, _refuse_constant)
        text.encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"content is not JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("content is nested too deep") from None
    except UnicodeEncodeError:
        raise ValueError(_NOT_UTF8) from None
    if ("\\ud" in text or "\\uD" in text) and any(escape[1] for escape in _ESCAPE.finditer(text)):
        raise ValueError(_NOT_UTF8)


def walk_json(text: str, on_constant: Callable[[str], Any]) -> None:
    """Read JSON without keeping its values: only the length of each number and object is computed. Raises the errors of `json.loads`.

    Converting a long number takes long, and millions of numbers or objects take memory.
    """
    json.loads(text, parse_constant=on_constant, parse_int=len, parse_float=len, object_pairs_hook=len)


def sorts_slowly(text: str) -> bool:
    """Whether PostgreSQL may take long to sort the names of the objects of valid JSON."""
    compared = 0

    def count(pairs: list[tuple[str, Any]]) -> int:
        nonlocal compared
        compared += len(pairs) * (COMPARISON * len(pairs) + sum(len(name) for name, _ in pairs))
        return len(pairs)

    names = text.count(":")
    if names * (COMPARISON * names + len(text)) > MOST_COMPARED:
        json.loads(text, parse_int=len, parse_float=len, object_pairs_hook=count)
    return compared > MOST_COMPARED


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"content is not JSON: {name} is not allowed in JSON")


def check_nul(text: str, name: str) -> None:
    """Raise ValueError with a sentence if JSON holds a NUL character."""
    if "\\u0000" in text and _NUL.search(text):
        raise ValueError(f"{name} holds a NUL character, which PostgreSQL cannot store; leave it out or send it in body")
