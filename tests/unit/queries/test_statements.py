"""SQL files of the relay: each is found by its name alone, in whatever folder it is."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files

from relay.queries.statements import FRAGMENTS, TEMPLATES, Statements, names


def test_no_two_folders_have_a_file_of_one_name() -> None:
    """A statement is asked for by its name, so a second file of that name would hide the first."""
    stems = Counter(file.name for folder in files("relay.queries").iterdir() if folder.is_dir() for file in folder.iterdir())
    assert [] == [name for name, count in stems.items() if count > 1]


def test_each_statement_is_whole_and_each_fragment_is_in_a_folder_of_its_own() -> None:
    """What `names` lists needs no other part, and all that needs one is a template or a fragment."""
    statements = Statements("public")
    assert [] == [name for name in names() if b"@" in statements[name].replace(b"@>", b"").replace(b"<@", b"")]
    fragments = {file.name.removesuffix(".sql") for file in (files("relay.queries") / FRAGMENTS).iterdir()}
    assert fragments.isdisjoint({*names(), *TEMPLATES})
