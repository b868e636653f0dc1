"""Reads a contract's schema from a file, standard input, or a pydantic model named `module:Model`."""

from __future__ import annotations

import codecs
import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import typer

from relay.cli.common.output import quoted
from relay.cli.common.support import refuse

_MODEL = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_LARGEST = 1 << 20
"""The most bytes of a file that are read; a schema may have a quarter of this number."""


def read_schema(source: str) -> Any:
    """The document in a file (`-` for standard input), or the JSON Schema of a model's serialized form.

    A model is imported with the current directory in the path, so its module runs.
    """
    if _MODEL.fullmatch(source) and not Path(source).exists():
        return _of_model(source)
    try:
        with sys.stdin.buffer if source == "-" else Path(source).open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise typer.BadParameter(f"{quoted(source)} cannot be read: {error.strerror or type(error).__name__}.") from None
    if len(data) > _LARGEST:
        refuse(f"{quoted(source)} is larger than any schema may be.")
    return _parsed(data, "Standard input" if source == "-" else quoted(source))


def _parsed(data: bytes, called: str) -> Any:
    if data.startswith(codecs.BOM_UTF8):
        refuse(f"{called} begins with a byte order mark: save it as UTF-8 without one.")
    try:
        return json.loads(data, parse_constant=_no_number)
    except RecursionError:
        refuse(f"{called} nests too deep for a schema; flatten it with $defs and $ref.")
    except ValueError:
        refuse(f"{called} is not JSON: give a file with a JSON Schema, or a pydantic model as module:Model.")


def _of_model(source: str) -> Any:
    module, _, name = source.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if inspect.isroutine(found):
            refuse(f"{quoted(source)} is a function, and a contract is about a message: name a model.")
        return _schema_of(found)
    except ModuleNotFoundError as error:
        refuse(f"Module {quoted(error.name or module)} is not found from the current directory; start where it can be imported.")
    except typer.Exit:
        raise
    except AttributeError:
        refuse(f"Module {quoted(module)} has no {quoted(name)}.")
    except Exception as error:  # noqa: BLE001 - any error of the application's module
        refuse(f"{quoted(source)} gives no JSON Schema: {type(error).__name__}.")
    finally:
        sys.path.pop(0)


def _schema_of(found: Any) -> Any:
    """The schema of the JSON that the model writes, with its aliases."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - a file does not need it

    return TypeAdapter(found).json_schema(mode="serialization", by_alias=True)


def _no_number(name: str) -> Any:
    raise ValueError(name)
