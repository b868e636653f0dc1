"""README and docs against the code: what they name exists, and the tables that can be made from the code are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relay import events
from relay.config.settings import POLICY
from relay.observability.metrics import Metrics
from relay.observability.peer_gauges import PEERS
from relay.observability.queue_gauges import GAUGES
from tests import ROOT
from tests.support.faults.catalogue import MENU
from tests.support.pages import doc_tables, docs
from tests.support.servers.logins import KINDS

every_page = pytest.mark.parametrize("page", docs.PAGES, ids=lambda page: str(page.relative_to(ROOT)))
KNOWN_ELSEWHERE = {"queue_message_test_seq", "queue_message_test"}
"""Names of an example, not of the schema."""


@pytest.mark.parametrize(("page", "name"), doc_tables.TABLES)
def test_a_table_is_what_the_code_says(page: str, name: str) -> None:
    """Write it again with `python -m tests.support.pages.doc_tables`."""
    assert doc_tables.TABLES[page, name]() == doc_tables.written(page, name)


@every_page
def test_every_test_that_is_named_exists(page: Path) -> None:
    """A promise points at the test that holds it."""
    named = re.findall(r"\btest_\w+(?:\.py)?", docs.text_of(page))

    assert set() == {name for name in named if name not in KNOWN_ELSEWHERE} - docs.tests()


@every_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    """To a file of the repository, and to a heading where an anchor is named."""
    for target in docs.links(page):
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert not anchor or anchor in docs.anchors(file), target


@every_page
def test_every_command_and_option_that_is_named_exists(page: Path) -> None:
    """A reader may type what is there."""
    lines = [re.sub(r"^(?:docker compose run --rm operator|relay) ", "relay ", span) for span in docs.spans(page)]

    assert [] == [(line, wrong) for line in lines if line.startswith("relay ") and (wrong := docs.wrong_command(line))]


@every_page
def test_every_setting_that_is_named_exists(page: Path) -> None:
    """No variable that nothing reads."""
    assert set() == set(re.findall(r"\bRELAY_[A-Z_]*[A-Z]\b", docs.text_of(page))) - docs.variables()


@pytest.mark.parametrize("page", [page for page in docs.PAGES if not docs.is_history(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_a_setting_of_the_database_is_named_as_one(page: Path) -> None:
    """Its variable counts only for a new database, so none but the page of settings names it outside a program."""
    variables = {f"RELAY_{name.upper()}" for name in POLICY}

    assert page.name == "settings.md" or set() == variables & set(re.findall(r"\bRELAY_[A-Z_]*[A-Z]\b", docs.prose(page)))


@every_page
def test_every_name_of_the_schema_exists(page: Path) -> None:
    """Tables, views and functions that a reader may type into psql; a decision may speak of what was tried."""
    found = {name for span in docs.spans(page) for name in re.findall(r"\bqueue_message\w*", span)}
    named = {re.sub(r"_\d{8}$", "", name) for name in found}  # a day's partition

    assert set() == named - docs.schema_names() - KNOWN_ELSEWHERE


def metrics_page() -> str:
    """All that a relay can show, once it has looked at its queue."""
    metrics = Metrics(*PEERS)
    metrics.sink(events.ListenUp())
    metrics.watch(in_flight=int, silent=lambda: {"e": 1.0})
    metrics.queue(dict.fromkeys(GAUGES, 0.0))
    return metrics.render()[0].decode()


@every_page
def test_every_metric_that_is_named_is_exported(page: Path) -> None:
    """An alert on a metric that is not there never fires."""
    exported = set(re.findall(r"^(?:# TYPE )?(relay_\w+)", metrics_page(), re.MULTILINE))

    named = {span for span in docs.spans(page) if re.fullmatch(r"relay_[a-z_]+", span)}

    assert set() == named - exported - {"relay_id"}  # which is a value of a log line


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/operations/access.md"])
def test_a_table_of_roles_has_every_role(page: str) -> None:
    """The two that say what each may do and may not."""
    table = docs.text_of(ROOT / page).partition("may not")[2].partition("\n\n")[0]

    named = re.findall(r"^\| (?:[^|]*, role )?`(\w+)` \|", table, re.MULTILINE)
    assert {kind.removeprefix("queue_message_") for kind in KINDS} == set(named)


def test_pages_and_examples_import_public_names_alone() -> None:
    """Those that the page of the Python API shows, each of which is there."""
    programs = [block for page in docs.PAGES if not docs.is_history(page) for block in docs.blocks(page)]
    programs += [docs.text_of(path) for path in ROOT.glob("examples/**/*.py")]
    imported = set().union(*map(docs.imported_names, programs))

    assert imported
    assert set() == imported - docs.public_names()


def test_every_metric_has_a_line_on_the_page_of_metrics() -> None:
    """Of a relay that looks at its queue; `process_*` is the library's."""
    exported = set(re.findall(r"^# TYPE (relay_\w+)", metrics_page(), re.MULTILINE))
    table = docs.text_of(ROOT / "docs" / "operations" / "alerts.md").partition("## Alerts")[0]
    named = set(re.findall(r"`(relay_\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))

    assert exported == named


def test_every_step_that_fails_is_named() -> None:
    """The values of the label `step`, but those that are names of maintenance tasks."""
    [row] = re.findall(r"^\| `relay_failures_total` \| (.*) \|$", docs.text_of(ROOT / "docs" / "operations" / "alerts.md"), re.MULTILINE)
    texts = "".join(docs.text_of(path) for path in ROOT.glob("relay/**/*.py"))
    steps = re.findall(r'(?:MaintenanceFailed\(|_failures\.labels\()"([a-z_ ]+)"', texts)

    assert set(re.findall(r"`([a-z_ ]+)`", row)) - {"step"} == set(steps)


def test_every_exit_code_has_a_line() -> None:
    """Of the one table that has them."""
    table = docs.text_of(ROOT / "docs" / "cli.md").partition("## Exit codes")[2].partition("\n\n|")[2].partition("\n\n")[0]
    lines = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)

    assert docs.exit_codes() == {int(code) for line in lines for code in line.split(", ")}


def test_every_fault_of_the_menu_has_a_row() -> None:
    """Also one that was never played, and under its name."""
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", docs.text_of(ROOT / "docs" / "faults.md"), re.MULTILINE)

    assert [(str(number), fault) for number, fault in MENU.items()] == rows


def test_every_error_code_is_explained_and_no_other() -> None:
    """The first column of the tables of codes, against the calls and statements that write them."""
    text = docs.text_of(ROOT / "docs" / "codes.md").partition("## Rejected")[2]

    assert docs.codes() == set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_decisions_are_numbered_without_gaps() -> None:
    """Each has a name after its number."""
    names = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))

    assert [f"{number:04d}-" for number in range(1, len(names) + 1)] == [name[:5] for name in names]
