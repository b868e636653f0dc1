"""What may be named as a handler, and what is refused before the first message."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.errors import SettingsError
from relay.worker.handler import find

TEXT = """
from functools import partial
class Made:
    def __init__(self, message): pass
class Called:
    async def __call__(self, message): pass
def nothing(): pass
async def both(message, connection): pass
async def one(message): pass
async def more(message, *rest, option=1): pass
called = Called()
bound = partial(both, connection=None)
native = print
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with modules, that is forgotten afterwards."""
    names = ("of_handlers", "of_mistakes", "of_trouble")
    for name, text in zip(names, (TEXT, "def broken(:\n", "raise ZeroDivisionError('half a config')\n"), strict=True):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "transaction", "sentence"),
    [
        ("of_handlers:Made", False, "is a class"),
        ("of_handlers:nothing", False, "cannot be called with message, which is what it gets"),
        ("of_handlers:both", False, "cannot be called with message, which is what it gets"),
        ("of_handlers:one", True, "cannot be called with message and connection, which is what it gets"),
        ("of_mistakes:broken", False, "fails as it is imported (SyntaxError: "),
        ("of_trouble:any", False, "fails as it is imported (ZeroDivisionError: half a config)"),
    ],
)
def test_what_can_handle_no_message_is_refused_by_its_name(name: str, transaction: bool, sentence: str) -> None:
    """In one sentence, before a message loses a try over it."""
    with pytest.raises(SettingsError) as refused:
        find(name, transaction=transaction)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "transaction"),
    [("one", False), ("more", False), ("more", True), ("both", True), ("called", False), ("bound", False), ("native", False)],
)
def test_what_can_be_called_so_is_taken(name: str, transaction: bool) -> None:
    """Functions, objects that are called, partial functions, and what does not say what it takes."""
    found = find(f"of_handlers:{name}", transaction=transaction)
    assert callable(found)
    assert not inspect.isclass(found)
