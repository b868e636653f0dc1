"""The documentation site shows every page, once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from tests.support.docs import PAGES, ROOT

EXAMPLES = ROOT / "examples"
DECISIONS = ROOT / "docs" / "decisions"


def leaves(nav: Any) -> Iterator[str]:
    """The pages below an entry of the navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from leaves(part)


def test_every_page_is_in_the_navigation_once() -> None:
    """But decisions, to which pages lead, and programs, to which the page of the examples leads."""
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    pages = {str(page.relative_to(ROOT)) for page in PAGES if DECISIONS not in page.parents and page.parent.parent != EXAMPLES}

    assert sorted(pages) == sorted(leaves(site["project"]["nav"]))
