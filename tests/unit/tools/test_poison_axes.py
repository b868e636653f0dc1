"""The axes from which poison is drawn, against the page that says what is accepted."""

from __future__ import annotations

import re

from tests import ROOT
from tests.support.poison.rows import OPTIONS, SHAPES, given


def test_every_documented_option_and_code_is_drawn() -> None:
    """Whatever the page lists is on an axis; `encoding_failed` is for what no rule foresaw."""
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    _, options, codes = (section.partition("\n## ")[0] for section in re.split(r"\n## (?=Options|Error codes)", page))
    drawn = {name for entry in OPTIONS.values() for name in given(entry)}
    assert {*re.findall(r"`(\w+)`", " ".join(re.findall(r"^\|(.*?)\|", options, re.MULTILINE)))} <= drawn
    refused = {entry.code for entry in OPTIONS.values()} | {code for _, code in SHAPES.values()}
    assert {*re.findall(r"^\| `(\w+)`", codes, re.MULTILINE)} <= {*refused, "encoding_failed"}
