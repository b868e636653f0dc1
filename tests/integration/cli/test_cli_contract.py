"""relay contract: add, list, show, mode, remove and test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

pytestmark = pytest.mark.ids("A37")
SCHEMA: dict[str, Any] = {"type": "object", "required": ["order"], "properties": {"lines": {"items": {"type": "integer"}}}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a schema and a module with models."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "other.json").write_text('{"type": "array"}')
    (tmp_path / "shop_models.py").write_text(
        "from decimal import Decimal\nfrom pydantic import BaseModel, Field\n"
        "class Order(BaseModel):\n    number: int = Field(serialization_alias='order')\n    total: Decimal = Decimal(0)\n"
        "class Outer:\n    class Inner(BaseModel):\n        a: int\nnothing = 5\ndef act(): pass\n"
    )
    (tmp_path / "broken_models.py").write_text("raise RuntimeError('hunter22')\n")
    return tmp_path


def test_a_contract_is_added_listed_shown_changed_and_removed(cli: Cli, seeded: Seeded) -> None:
    """Versions are numbered; the same schema again changes nothing; what is before a removed version holds again."""
    assert "contract 'orders' 'order.*' version 1 is added, mode warn\n" == cli("contract", "add", "orders", "order.*", "order.json")
    assert "contract 'orders' 'order.*' version 1 is there already; nothing is changed\n" == cli(
        "contract", "add", "orders", "order.*", "order.json"
    )
    assert "contract 'orders' 'order.*' version 1 is in mode enforce (was warn)\n" == cli(
        "contract", "mode", "orders", "order.*", "enforce"
    )
    assert "contract 'orders' 'order.*' version 1 was in mode enforce already; nothing is changed\n" == cli(
        "contract", "mode", "orders", "order.*", "enforce"
    )
    assert "contract 'orders' 'order.*' version 2 is added, mode warn\n" == cli("contract", "add", "orders", "order.*", "other.json")
    cli("contract", "add", "orders", "order.*", "-", "--version", "7", "--mode", "enforce", stdin="true")

    listed = cli.json("contract", "list")
    assert [(1, "enforce", False), (2, "warn", False), (7, "enforce", True)] == [
        (row["version"], row["mode"], row["holds"]) for row in listed
    ]
    assert "'order.*'" in cli("contract", "list")
    assert (7, True) == (
        cli.json("contract", "show", "orders", "order.*")["version"],
        cli.json("contract", "show", "orders", "order.*")["schema"],
    )
    assert SCHEMA == cli.json("contract", "show", "orders", "order.*", "--version", "1")["schema"]
    assert '"required"' in cli("contract", "show", "orders", "order.*", "--version", "1")

    assert "1 version of contract 'orders' 'order.*' is removed\n" == cli("contract", "remove", "orders", "order.*", "--version", "7")
    assert [True, True] == [row["holds"] for row in cli.json("contract", "list")]
    assert "2 versions of contract 'orders' 'order.*' are removed\n" == cli("contract", "remove", "orders", "order.*", "--all")
    assert "there is no contract\n" == cli("contract", "list")
    actions = seeded.run("SELECT action, count(*) FROM queue_message_audit GROUP BY action ORDER BY action")
    assert [("contract", 4), ("remove_contract", 3)] == actions


@pytest.mark.parametrize(
    ("model", "fine", "broken"),
    [("shop_models:Order", '{"order": 1, "total": "1.50"}', '{"number": 1}'), ("shop_models:Outer.Inner", '{"a": 1}', '{"a": "x"}')],
)
def test_a_pydantic_model_is_a_schema_as_it_is_written(cli: Cli, seeded: Seeded, model: str, fine: str, broken: str) -> None:
    """By its aliases, with decimals as text; imported from the current directory."""
    cli("contract", "add", "orders", "#", model)
    seeded.archive("success", content=fine)
    assert "0 of 1 message would fail\n" == cli("contract", "test", "orders", "#", model)
    seeded.archive("success", content=broken)
    assert cli("contract", "test", "orders", "#", code=1).startswith("1 of 2 messages would fail\n")


@pytest.mark.parametrize(
    ("source", "code", "sentence"),
    [
        ("absent.json", 2, "'absent.json' cannot be read: No such file or directory. See `relay contract add --help`."),
        (".", 2, "'.' cannot be read: Is a directory. See `relay contract add --help`."),
        ("shop_models.py", 1, "'shop_models.py' is not JSON: give a file with a JSON Schema, or a pydantic model as module:Model."),
        ("absent_models:Order", 1, "Module 'absent_models' is not found from the current directory; start where it can be imported."),
        ("shop_models:Absent", 1, "Module 'shop_models' has no 'Absent'."),
        ("shop_models:nothing", 1, "'shop_models:nothing' gives no JSON Schema: PydanticSchemaGenerationError."),
        ("broken_models:Order", 1, "'broken_models:Order' gives no JSON Schema: RuntimeError."),
        ("wrong.json", 1, "The schema is wrong at \"/type\" by the rule 'anyOf' of JSON Schema 2020-12."),
        (
            "remote.json",
            1,
            'A $ref leads out of the schema, and nothing is ever fetched, or to nothing or several places: "https://example.com/x".',
        ),
        ("shop_models:act", 1, "'shop_models:act' is a function, and a contract is about a message: name a model."),
        ("nul.json", 1, "The schema holds a NUL character, which PostgreSQL cannot store; leave it out."),
        ("half.json", 1, "The schema holds text that is not valid UTF-8: half of a surrogate pair; correct it."),
        ("marked.json", 1, "'marked.json' begins with a byte order mark: save it as UTF-8 without one."),
        ("deep.json", 1, "'deep.json' nests too deep for a schema; flatten it with $defs and $ref."),
        ("-", 1, "Standard input is not JSON: give a file with a JSON Schema, or a pydantic model as module:Model."),
        ("nan.json", 1, "'nan.json' is not JSON: give a file with a JSON Schema, or a pydantic model as module:Model."),
        ("large.json", 1, "'large.json' is larger than any schema may be."),
    ],
)
def test_what_is_no_schema_is_refused_in_one_sentence(
    cli: Cli, seeded: Seeded, folder: Path, source: str, code: int, sentence: str
) -> None:
    """Before the database is asked, and without a word of what a module raised."""
    texts = {
        "wrong": '{"type": "objekt"}',
        "remote": '{"$ref": "https://example.com/x"}',
        "nul": '{"title": "\\u0000"}',
        "nan": '{"maximum": NaN}',
        "half": '{"title": "\\ud800"}',
        "marked": "\ufeff{}",
        "deep": '{"not":' * 5000 + "{}" + "}" * 5000,
    }
    for name, text in {**texts, "large": '{"title": "%s"}' % ("x" * (1 << 20))}.items():
        (folder / f"{name}.json").write_text(text)
    assert sentence == cli.refused("contract", "add", "orders", "#", source, code=code)
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message_contract")


def test_a_schema_that_takes_long_to_compile_is_refused(cli: Cli, seeded: Seeded, folder: Path) -> None:
    """Compiling a schema blocks the relay, which keeps the result. Three hundred patterns with a large class take a gigabyte."""
    slow = {"allOf": [{"pattern": f"^[\\p{{L}} .-]{{1,100}}{n}$"} for n in range(300)]}
    (folder / "slow.json").write_text(json.dumps(slow))
    refused = cli.refused("contract", "add", "orders", "#", "slow.json", code=1)
    assert "takes more than 32 MiB of memory when it is compiled: write fewer or shorter regular expressions" in refused
    assert [] == cli.json("contract", "list")


def test_a_version_that_no_relay_can_read_does_not_hold(cli: Cli, seeded: Seeded) -> None:
    """Written past the command: its messages go unchecked, and the list says so."""
    for version, schema in ((1, "true"), (2, '{"type": "objekt"}')):
        seeded.run(
            "INSERT INTO queue_message_contract (exchange, routing_key, version, mode, schema) VALUES ('orders', '#', %s, 'enforce', %s)",
            version, schema,
        )  # fmt: skip
    listed = cli.json("contract", "list")
    assert [(1, False, False), (2, False, True)] == [(row["version"], row["holds"], bool(row["unusable"])) for row in listed]
    cli("contract", "list")
    assert (
        "Messages of contract 'orders' '#' version 2 go unchecked, for no relay can read it: "
        "The schema is wrong at \"/type\" by the rule 'anyOf' of JSON Schema 2020-12.\n"
    ) == cli.stderr


def test_a_trial_of_a_time_to_come_is_wrong_usage(cli: Cli, seeded: Seeded) -> None:
    """Else a slip in the year would look like a schema that all messages keep."""
    said = cli.refused("contract", "test", "orders", "#", "order.json", "--since", "2999-01-01T00:00:00Z", code=2)
    assert "Nothing matches: --since must be before now. See `relay contract test --help`." == said


def test_a_version_is_final(cli: Cli, seeded: Seeded) -> None:
    """Another schema under the same number is refused, by the command and by SQL."""
    cli("contract", "add", "orders", "#", "order.json")
    said = cli.refused("contract", "add", "orders", "#", "other.json", "--version", "1", code=1)
    assert "Version 1 of this contract is there with another schema, and final: add another version." in said
    with pytest.raises(psycopg.errors.RestrictViolation, match="Version 1 of a contract is final but for its mode"):
        seeded.run("UPDATE queue_message_contract SET schema = 'true'")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (("warn", "[]"), "must be a JSON object, or true or false"),
        (("warn", '"x"'), "must be a JSON object, or true or false"),
        (("shadow", "true"), "mode must be enforce or warn"),
        (("warn", '{"$schema": "http://json-schema.org/draft-07/schema#"}'), r"correct \$schema"),
        (("warn", json.dumps({"title": "x" * 262_144})), "is 262157 bytes long; the limit is 262144 bytes"),
    ],
)
def test_the_database_refuses_what_it_can_tell_is_no_contract(seeded: Seeded, values: tuple[str, str], sentence: str) -> None:
    """It refuses the write from any login, and says why in a sentence."""
    with pytest.raises(psycopg.errors.CheckViolation, match=sentence):
        seeded.run(
            "INSERT INTO queue_message_contract (exchange, routing_key, version, mode, schema) VALUES ('a', 'b', 1, %s, %s)", *values
        )
    with pytest.raises(psycopg.errors.CheckViolation, match=r"exchange is 256 bytes long; the limit is 255 bytes"):
        seeded.run("SELECT queue_message_contract_add(repeat('x', 256), '', 'true')")


@pytest.mark.parametrize("command", [["show"], ["mode", "warn"], ["remove", "--all"], ["test"]])
def test_a_contract_that_is_not_there_is_told(cli: Cli, seeded: Seeded, command: list[str]) -> None:
    """With exit code 3."""
    said = cli.refused("contract", command[0], "orders", "#", *command[1:], code=3)
    assert said.startswith("There is no such contract")


def test_remove_asks_which(cli: Cli, seeded: Seeded) -> None:
    """Neither nothing nor both."""
    for words in ([], ["--all", "--version", "1"]):
        assert "either --version or --all" in cli.refused("contract", "remove", "orders", "#", *words, code=2)


def test_a_trial_says_how_many_would_fail_where_and_why(cli: Cli, seeded: Seeded) -> None:
    """By place and rule, the most frequent first, with the first ids; other keys, exchanges and older messages are left out."""
    ids = [
        seeded.archive("success", routing_key="order.paid", content=text)
        for text in ('{"order": 1, "lines": [1, "x"]}', '{"order": 1, "lines": ["x"]}')
    ]
    ids += [seeded.archive("rejected", "contract_violated", routing_key="order.paid", content="{}")]
    ids += [seeded.archive("success", routing_key="order.paid", body=b"1")]
    seeded.archive("success", routing_key="order.paid", content='{"order": 1}')
    seeded.archive("success", routing_key="else", content="[]")
    seeded.archive("success", exchange="audit", routing_key="order.paid", content="[]")

    found = cli.json("contract", "test", "orders", "order.*", "order.json", code=1)

    assert (5, 4, False) == (found["messages"], found["would_fail"], found["limited"])
    assert ("/lines/*", "type", 2, ids[1::-1]) == tuple(found["violations"][0][name] for name in ("pointer", "rule", "messages", "ids"))
    assert {("", "required", 1), ("", "body", 1)} == {(one["pointer"], one["rule"], one["messages"]) for one in found["violations"][1:]}
    said = cli("contract", "test", "orders", "order.*", "order.json", code=1)
    assert said.startswith("4 of 5 messages would fail\n")
    assert ids[2] in said
    assert "0 of 1 message would fail (--limit was reached)\n" == cli("contract", "test", "orders", "order.*", "order.json", "--limit", "1")


def test_a_trial_leaves_out_what_was_too_large_to_be_sent(cli: Cli, seeded: Seeded) -> None:
    """Twenty contents are in memory at a time, so their size is bounded, whatever became of them; with and without the setting's row."""
    for result, size in (("success", 10), ("rejected", 2000), ("discarded", 2000)):
        seeded.archive(result, content=json.dumps({"number": "x" * size}))
    assert cli("contract", "test", "orders", "#", "order.json", code=1).startswith("3 of 3 messages would fail\n")

    seeded.run("SELECT queue_message_config_set('max_body_bytes', '1000')")
    assert cli("contract", "test", "orders", "#", "order.json", code=1).startswith("1 of 1 message would fail\n")


@pytest.mark.parametrize("what", ["erased", "too large by its code"])
def test_a_trial_leaves_out_what_says_nothing_of_the_contract(cli: Cli, seeded: Seeded, what: str) -> None:
    """An erased message has no content any more; one that was too large may take seconds to print."""
    seeded.archive("success", content='{"number": "x"}')
    left_out = seeded.archive("rejected", "nacked" if what == "erased" else "body_too_large", content='{"number": "x"}')
    if what == "erased":
        cli("erase", left_out)

    assert cli("contract", "test", "orders", "#", "order.json", code=1).startswith("1 of 1 message would fail\n")


def test_a_trial_without_messages_says_so(cli: Cli, seeded: Seeded) -> None:
    """Nothing failed, and nothing was tried."""
    assert "0 of 0 messages would fail\n" == cli("contract", "test", "orders", "order.#", "order.json", "--since", "2h")
    assert "No message of exchange 'orders' with a routing key like 'order.#' was archived since then.\n" == cli.stderr


def test_a_pattern_that_nothing_matched_is_worth_a_warning(cli: Cli, seeded: Seeded) -> None:
    """Only where none of the messages archived lately has such a key."""
    seeded.archive("success", routing_key="order.paid")
    cli("contract", "add", "orders", "order.*", "order.json")
    assert "" == cli.stderr
    cli("contract", "add", "orders", "ordre.*", "order.json")
    assert cli.stderr.startswith("None of the messages archived lately has exchange 'orders' and a routing key like 'ordre.*'")


def test_an_operator_manages_contracts_and_reads_no_contents(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """A trial needs the role that may read the archive; writing a contract needs the operator's."""
    seeded.archive("success", content="{}")
    with login(database_url, "queue_message_operator") as url:
        cli("contract", "add", "orders", "#", "order.json", RELAY_DATABASE_URL=url)
        cli("contract", "mode", "orders", "#", "enforce", RELAY_DATABASE_URL=url)
        cli("contract", "list", RELAY_DATABASE_URL=url)
        cli("contract", "asyncapi", RELAY_DATABASE_URL=url)
        said = cli.refused("contract", "test", "orders", "#", code=1, RELAY_DATABASE_URL=url)
        assert said.startswith("Your role may not read contents: that takes SELECT on queue_message_archive")
        cli("contract", "remove", "orders", "#", "--version", "1", RELAY_DATABASE_URL=url)
    cli("contract", "add", "orders", "#", "order.json")
    with login(database_url, "queue_message_etl") as url:
        cli("contract", "test", "orders", "#", code=1, RELAY_DATABASE_URL=url)
        assert "`relay grant operator LOGIN`" in cli.refused("contract", "mode", "orders", "#", "warn", code=1, RELAY_DATABASE_URL=url)
    with login(database_url, "queue_message_producer", "queue_message_relay") as url, psycopg.connect(url) as other:
        other.execute("SELECT * FROM queue_message_contract")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute("DELETE FROM queue_message_contract")


def test_hostile_names_are_shown_safely(cli: Cli, seeded: Seeded) -> None:
    """Quoted for a shell, on one line."""
    said = cli("contract", "add", "a\x1b[2J", "b\nc", "order.json")
    assert "contract $'a\\x1b[2J' $'b\\x0ac' version 1 is added, mode warn\n" == said
    assert "\x1b" not in cli("contract", "list") + cli("contract", "show", "a\x1b[2J", "b\nc") + cli.stderr
