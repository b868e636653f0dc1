"""The report's page from made-up reports: what it says, and that no text of an application's can break it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from relay.pipeline.report import heat, text
from relay.pipeline.report.page import render
from tests.support.lake import reports

VOID = {"meta", "link"}
ALLOWED = set(
    re.findall(
        "[a-z0-9]+",
        "html head meta link title style body header main footer section h1 h2 p dl div dt dd small span figure figcaption ul li i bdi "
        "code table caption thead tbody tr th td nav a svg defs g path text tspan use clippath rect",
    )
)


class Page(HTMLParser):
    """Elements, attributes and text of a page; fails where elements are not closed as they were opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(page)
        self.close()
        assert [] == self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element of SVG without content."""
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        """Expect what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Gather text."""
        self.words += data


HEADINGS = {
    "Bytes", "Code", "Command", "Confirm p95", "Day", "Days", "Dead", "Detail", "Discarded", "Exchange", "Files", "Lake bytes",
    "Lake files", "Lake rows", "Latest", "Longest", "Mean", "Messages", "On time", "Ordering key", "Part", "Partition", "PostgreSQL bytes",
    "PostgreSQL rows", "Published", "Result", "Routing key", "Rows", "Share dead", "Share of exchange", "Since", "Table", "Tries",
    "Tries each", "Verdict", "Verified", "Wait p95", "median", "p95", "p99",
}  # fmt: skip


@pytest.fixture(scope="module")
def hostile() -> str:
    """The page of a report whose texts try to break it."""
    return render(reports.hostile())


def test_hostile_texts_stay_text(hostile: str) -> None:
    """Markup in names, keys, codes and details makes no element, no attribute and no template; elements are closed as they were opened."""
    page = Page(hostile)

    assert ALLOWED >= page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "<script>alert(1)</script>" in page.words
    assert "{{ 7 * 7 }}{% raw %}" in page.words
    assert "$\\frac{1}{0}$" in page.words


def test_what_cannot_be_seen_is_written_as_its_number(hostile: str) -> None:
    """Controls, terminal escapes, marks of direction, line separators and lone surrogates are shown instead of sent."""
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\ud800-\udfff]", hostile) == []
    assert "⟨U+0000⟩⟨U+001B⟩[31m⟨U+0007⟩" in hostile
    assert "abc ⟨U+202E⟩dcba⟨U+2066⟩ غير مرئي שלום" in hostile


def test_long_keys_and_piled_up_marks_are_cut() -> None:
    """A key of 10 kB shows its beginning, its end and its length. A letter keeps two marks, and an emoji stays whole."""
    assert f"{'k' * 104} … {'k' * 16} (10,240 characters)" == text.shown("k" * 10_240)
    assert "é\u0336\u0336z" == text.shown("é" + "\u0336" * 100 + "z")
    assert "👩‍👩‍👧‍👦 Größe" == text.shown("👩‍👩‍👧‍👦 Größe")
    assert ("(empty)", text.NOTHING) == (text.shown(""), text.shown(None))


def test_a_label_is_cut_at_its_width() -> None:
    """A wide character takes two columns, so that labels of any script leave room for the plot."""
    assert "你好世界你好世界你…" == text.label("你好世界你好世界你好世界")
    assert "abcdefghijklmnopqr…" == text.label("abcdefghijklmnopqrst")


def test_labels_of_exchanges_cannot_stand_for_each_other() -> None:
    """An exchange named like a stand-in of the plot's labels keeps its own name."""
    one, *_ = reports.busy().numbers.exchanges

    plot, _ = heat.by_exchange((replace(one, name="label-1-"), replace(one, name="second")))

    assert 1 == plot.wide.count(">label-1-</tspan>")
    assert 1 == plot.wide.count(">second</tspan>")


def test_the_page_needs_nothing_else(hostile: str) -> None:
    """No script, no image, no font, no style sheet and no address but the data: icon's and names of XML; the page forbids them, too."""
    page = Page(hostile)

    assert {"script", "img", "iframe", "object", "base", "form"}.isdisjoint(page.tags)
    linked = {str(value) for name, value in page.attributes if name in {"src", "href"}}
    assert {"data:,"} == {value for value in linked if not value.startswith("#")}
    assert {value[1:] for value in linked if value.startswith("#")} <= {str(value) for name, value in page.attributes if name == "id"}
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/1999/xlink)", hostile)
    assert "default-src 'none'" in hostile


def test_columns_have_words_for_headings() -> None:
    """Each column is headed by the word that a reader expects, whatever the code calls what it shows."""
    found = re.findall(r'<th role="columnheader"[^>]*>(.*?)</th>', render(reports.busy()))

    assert set(found) == HEADINGS


def test_the_same_report_gives_the_same_page() -> None:
    """Nothing of the page depends on when or where it is made."""
    assert render(reports.busy()) == render(reports.busy())


def test_ids_are_unique(hostile: str) -> None:
    """Each plot is there for desktop and phone, and none refers into another one."""
    page = Page(hostile)
    ids = [value for name, value in page.attributes if name == "id"]
    used = {str(value).removeprefix("#") for name, value in page.attributes if name == "xlink:href"}

    assert len(set(ids)) == len(ids)
    assert used <= set(ids)
    assert set(re.findall(r"url\(#([^)]+)\)", hostile)) <= set(ids)


def test_numbers_of_a_week_are_on_the_page() -> None:
    """Totals, dead messages and what came out of the verification are said in words."""
    report = reports.busy()
    words = " ".join(Page(render(report)).words.split())

    assert f"{report.numbers.total.counts.published:,} messages published, {report.numbers.total.counts.dead} ended dead." in words
    assert "43 dead messages wait to be acknowledged. 1 partition of the archive differs from the lake." in words
    assert "The day 2026-03-07 differs from the lake and is kept: 2 rows are missing in the lake: (812, 40), (812, 41)." in words
    assert "max_attemptsfailed222" in words
    assert "37 older ones left out; relay dead list shows all." in words


def test_an_empty_lake_gives_a_page_that_says_so() -> None:
    """Without any export there is a page with what to do next."""
    words = " ".join(Page(render(reports.empty())).words.split())

    assert "The lake is empty" in words
    assert "Run relay pipeline export, then relay pipeline metrics." in words
    assert "No dead message waits." in words


def test_a_time_without_messages_gives_a_page_that_says_so() -> None:
    """The page names the days that the lake has."""
    assert "The lake has messages from 2026-01-04 to 2026-03-09." in render(reports.quiet())


def test_rows_that_nobody_counted_are_said() -> None:
    """An archive without numbers asks for the metrics."""
    quality = replace(reports.quiet().quality, archive_rows=1)

    words = " ".join(Page(render(replace(reports.quiet(), quality=quality))).words.split())

    assert "The lake has 1 message of this time, but they were not counted. Run relay pipeline metrics." in words


def test_a_single_discarded_message_makes_a_page() -> None:
    """Nothing published and nothing measured: the plots that need either are left out."""
    page = render(reports.tiny())

    assert 'id="time-title"' in page
    assert 'id="latency-title"' not in page
    assert 'id="target-title"' not in page


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (text.share(9_999_999, 10_000_000), "99.99 %"),
        (text.share(0, 0), text.NOTHING),
        (text.milliseconds(0.4), "0.4 ms"),
        (text.milliseconds(1234), "1.2 s"),
        (text.milliseconds(3.6e6 * 72), "3 days"),
        (text.rate(0, 3600), "0/h"),
        (text.rate(90, 3600), "1.5/min"),
        (text.rate(7_200_000, 3600), "2,000/s"),
        (text.plural(1, "message"), "1 message"),
    ],
)
def test_units_suit_the_number(said: str, expected: str) -> None:
    """Durations, rates and shares come in the unit that people would take; not all is never 100 %."""
    assert expected == said
