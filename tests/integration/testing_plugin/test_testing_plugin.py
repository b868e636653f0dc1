"""The pytest plugin in runs of its own: found by its entry point, loads nothing, and says what is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from relay.devservers.process import plain_environment
from tests.support.applications.plugin_runs import import_path

Run = Callable[..., subprocess.CompletedProcess[str]]
HEAVY = ("psycopg", "pydantic", "aio_pika", "relay.app.outbox", "relay.testing.outbox", "asyncio")
APPLICATION = '''
import psycopg
import pytest

from relay.client import Message, enqueue


@pytest.fixture
def connection(outbox_database_url):
    """As many test suites have it: one transaction for each test, rolled back."""
    with psycopg.connect(outbox_database_url) as connection:
        yield connection
        connection.rollback()


def test_it_announces(outbox, connection):
    enqueue(connection, Message(exchange="shop", routing_key="order.paid", content={"invoice": 7, "total": 120}))
    enqueue(connection, Message(exchange="audit", content={"invoice": 7}, ordering_key="c-7"))
    outbox.assert_enqueued(connection, exchange="shop", content={"invoice": 7})


def test_nothing_is_left_of_it(outbox, connection):
    outbox.assert_not_enqueued(connection)
    assert [] == outbox.waiting()


def test_it_arrives(outbox, outbox_database_url):
    with outbox.relay() as broker, psycopg.connect(outbox_database_url) as connection:
        broker.declare_exchange("shop")
        broker.bind("orders", "shop", "order.*")
        message = enqueue(connection, Message(exchange="shop", routing_key="order.paid", content={"invoice": 7}))
        connection.commit()
        broker.drained()
        assert [{"invoice": 7}] == [delivered.content for delivered in broker.queue("orders")]
        assert "success" == outbox.archive(message).result
'''
WRONG = """
def test_another_total(outbox, connection):
    enqueue(connection, Message(exchange="shop", routing_key="order.paid", content={"invoice": 7, "lines": [{"total": 120}]}))
    enqueue(connection, Message(exchange="audit", content={"invoice": 7}, ordering_key="c-7"))
    outbox.assert_enqueued(connection, exchange="shop", content={"lines": [{"total": 121}]})


def test_nothing(outbox, connection):
    outbox.assert_enqueued(connection, exchange="shop")


def test_something(outbox, connection):
    enqueue(connection, Message(exchange="shop", body=b"12345"))
    outbox.assert_not_enqueued(connection)


def test_a_misspelt_word(outbox, connection):
    enqueue(connection, Message(exchange="shop"))
    outbox.assert_enqueued(connection, exchang="shop")
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Write files of an application's tests, and run pytest on them as its developers do."""
    paths = import_path(tmp_path)

    def run(files: Mapping[str, str], *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "app"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider", "-W", "error", *words],
            cwd=folder, env={**plain_environment(tmp_path), "PYTHONPATH": paths, **environment},
            capture_output=True, text=True, check=False, timeout=100,
        )  # fmt: skip

    return run


def test_an_application_tests_what_it_enqueues(run: Run, empty_database_url: str) -> None:
    """Fixtures are there without a word of configuration but the database's; each test in a transaction that is rolled back."""
    done = run({"test_app.py": APPLICATION}, OUTBOX_TEST_DATABASE_URL=empty_database_url)
    assert (0, "3 passed") == (done.returncode, done.stdout.splitlines()[-1].split(" in ")[0]), done.stdout
    again = run({"test_app.py": APPLICATION}, OUTBOX_TEST_DATABASE_URL=empty_database_url)
    assert 0 == again.returncode, again.stdout


def test_a_failure_says_what_differs_and_what_there_is(run: Run, empty_database_url: str) -> None:
    """The closest message, and all of them, one a line; a word that no message has is a mistake of the test's."""
    done = run(
        {"test_app.py": APPLICATION + WRONG},
        "-k",
        "another or nothing or something or misspelt",
        OUTBOX_TEST_DATABASE_URL=empty_database_url,
    )
    said = re.findall(r"^E   +(.*)$", done.stdout, flags=re.MULTILINE)
    assert [
        "AssertionError: No message has exchange='shop', content={'lines': [{'total': 121}]}.",
        "The closest one differs in content['lines'][0]['total']: 120 is there, 121 was expected.",
        "This transaction has enqueued: 2 messages",
        'shop order.paid {"lines": [{"total": 120}], "invoice": 7} ready',
        "audit '' {\"invoice\": 7} ordering_key=c-7 ready",
        "AssertionError: No message has exchange='shop'.",
        "This transaction has enqueued: nothing. Is it the connection that the application writes on, before its commit?",
        "AssertionError: 1 message where none was expected.",
        "This transaction has enqueued: 1 message",
        "shop '' 5 bytes ready",
    ] == [line.rstrip() for line in said][:10]
    assert said[10].startswith("TypeError: A message has no exchang; it has exchange, routing_key, content")
    # The frames of the plugin itself are of no use to who reads this.
    assert "relay/testing/outbox.py" not in done.stdout.split("test_a_misspelt_word", maxsplit=1)[0]


def test_the_application_says_where_its_database_is(run: Run, empty_database_url: str) -> None:
    """By fixtures of its own, as it does for pytest's; the schema too."""
    override = f"""
import pytest

@pytest.fixture(scope="session")
def outbox_database_url():
    return {empty_database_url!r}

@pytest.fixture
def outbox_schema():
    return "queue"
"""
    test = "def test_it(outbox):\n    assert 'queue' == outbox.schema\n    assert [] == outbox.waiting()\n"
    done = run({"conftest.py": override, "test_app.py": test}, OUTBOX_TEST_DATABASE_URL="postgresql://nowhere/")
    assert 0 == done.returncode, done.stdout


def test_without_a_database_a_private_one_is_started(run: Run) -> None:
    """Or the test fails with the sentence that says what to do, where there are no binaries of PostgreSQL's."""
    done = run({"test_app.py": APPLICATION})
    assert 0 == done.returncode, done.stdout
    missing = "from importlib import import_module\nfrom relay.errors import LocalServerError\n"
    missing += "def none(*_):\n    raise LocalServerError('Nothing is installed.')\n"
    missing += "import_module('relay.devservers.postgres').find_postgres = none\n"
    done = run({"conftest.py": missing, "test_app.py": APPLICATION}, "-k", "announces")
    assert (
        "No test database: override the fixture outbox_database_url, or set OUTBOX_TEST_DATABASE_URL. A private one: Nothing" in done.stdout
    )


def test_the_settings_of_a_running_relay_name_no_test_database(run: Run, empty_database_url: str, tmp_path: Path) -> None:
    """RELAY_DATABASE_URL may be production's: it is not read."""
    test = "def test_it(outbox_database_url):\n    assert '127.0.0.1' in outbox_database_url\n"
    done = run(
        {"test_app.py": test}, RELAY_DATABASE_URL="postgresql://production/shop", OUTBOX_TEST_DATABASE_URL="postgresql://127.0.0.1/test"
    )
    assert 0 == done.returncode, done.stdout


def test_loading_the_plugin_loads_nothing_else(run: Run) -> None:
    """Otherwise every pytest run with the package installed would pay for it, whether it tests an outbox or not."""
    look = f"import sys\ndef pytest_collection_finish():\n    print('LOADED', [one for one in {HEAVY!r} if one in sys.modules])\n"
    look += "    print('OURS', sorted(one for one in sys.modules if one.split('.')[0] == 'relay'))\n"
    done = run({"conftest.py": look, "test_app.py": "def test_it(): pass\n"}, "--collect-only", "-s", "-p", "no:anyio")
    assert "LOADED []" in done.stdout, done.stdout
    assert "OURS ['relay', 'relay.testing', 'relay.testing.plugin']" in done.stdout
    assert 0 == done.returncode


def test_fixtures_have_the_plugins_own_names(run: Run) -> None:
    """Nothing of the application's is in their way."""
    done = run({"test_app.py": "def test_it(): pass\n"}, "--fixtures")
    ours = re.findall(r"^(\w+).*relay/testing/plugin\.py", done.stdout, flags=re.MULTILINE)
    assert ["outbox", "outbox_database_url", "outbox_schema"] == sorted(ours)
