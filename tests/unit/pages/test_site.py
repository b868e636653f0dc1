"""The documentation site shows every page, once."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from tests import ROOT
from tests.support.pages.docs import PAGES, links

EXAMPLES = ROOT / "examples"
DECISIONS = ROOT / "docs" / "decisions"


def leaves(nav: Any) -> Iterator[str]:
    """The pages below an entry of the navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from leaves(part)


def navigation() -> list[str]:
    """Every page, in its order."""
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    return [*leaves(site["project"]["nav"])]


def test_every_page_is_in_the_navigation_once() -> None:
    """But decisions, to which pages lead, and programs, to which the page of the examples leads."""
    pages = {str(page.relative_to(ROOT)) for page in PAGES if DECISIONS not in page.parents and page.parent.parent != EXAMPLES}

    assert sorted(pages) == sorted(navigation())


@pytest.mark.parametrize("page", [page for page in navigation() if page.startswith("docs/")])
def test_every_page_says_for_whom_it_is(page: str) -> None:
    """In the first words below its title."""
    title, _, text = (ROOT / page).read_text(encoding="utf-8").partition("\n\n")

    assert title.startswith("# ")
    assert text.startswith("For ")


def test_the_page_of_operations_leads_to_every_page_for_operators() -> None:
    """Those of the menu's group, but itself."""
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    [group] = [part["Operate"] for part in site["project"]["nav"] if "Operate" in part]
    overview, *pages = (ROOT / page for page in group)

    assert {overview.parent / link for link in links(overview)} == {
        overview.parent / os.path.relpath(page, overview.parent) for page in pages
    }
