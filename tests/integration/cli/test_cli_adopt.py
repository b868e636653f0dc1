"""relay adopt: what it says, what it prints for a DBA, and what it refuses."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.applications.other_outboxes import DEBEZIUM, GO_OUTBOX, go_outbox_row
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

MIRROR = ("adopt", "mirror", "go-outbox", "outbox.messages")


@pytest.fixture
def seeded(seeded: Seeded) -> Seeded:
    """A database with the tables of two other systems."""
    seeded.run(GO_OUTBOX.definition)
    seeded.run(DEBEZIUM.definition)
    return seeded


def test_a_check_judges_rows_and_changes_nothing(cli: Cli, seeded: Seeded) -> None:
    """Before anything is installed: where each would go, and why it could not."""
    assert "'outbox.messages' fits, and has no rows to judge\n" == cli(*MIRROR, "--check")
    seeded.named(GO_OUTBOX.insert, go_outbox_row(target='{"exchange": "bank"}'))
    seeded.named(GO_OUTBOX.insert, go_outbox_row(topic="x" * 300))
    said = cli(*MIRROR, "--check")
    assert "bank" in said
    assert "the limit is 255 bytes" in said
    assert "no table of another outbox is watched or switched\n" == cli("adopt", "list")
    assert [(0, 0)] == seeded.run(
        "SELECT (SELECT count(*) FROM pg_proc WHERE proname ~ 'message_from'), (SELECT count(*) FROM queue_message_adoption_seen)"
    )


@pytest.mark.parametrize("by", ["trigger", "view"])
def test_the_printed_sql_does_what_the_command_does(cli: Cli, seeded: Seeded, by: str) -> None:
    """Each step, run by a DBA; a step from another phase than the printed one changes nothing."""
    seeded.run(runnable(cli(*MIRROR, "--by", by, "--sql")))
    switch = runnable(cli("adopt", "switch", "outbox.messages", "--sql"))
    seeded.run(switch)
    seeded.named(GO_OUTBOX.insert, go_outbox_row())
    assert [(1,)] == seeded.run("SELECT count(*) FROM queue_message")
    with pytest.raises(psycopg.errors.RaiseException, match="Somebody else has changed the phase"):
        seeded.run(switch)
    seeded.run("ROLLBACK")
    seeded.run(runnable(cli("adopt", "back", "messages", "--sql")))
    seeded.named(GO_OUTBOX.insert, go_outbox_row())
    assert [(1, 1)] == seeded.run("SELECT (SELECT count(*) FROM queue_message), (SELECT count(*) FROM outbox.messages)")
    assert [] == seeded.run("SELECT proname FROM pg_proc WHERE proname ~ 'message_from'")


@pytest.mark.parametrize("by", ["trigger", "view"])
def test_back_leaves_the_table_as_it_was(cli: Cli, seeded: Seeded, by: str) -> None:
    """From every phase: its kind, its triggers, who may do what."""
    [(producer,)] = seeded.run("SELECT queue_message_role('producer')")
    seeded.run(f"GRANT INSERT ON outbox.messages TO {producer}")
    was = shape(seeded)
    for steps in ((), ("switch",), ("switch", "finish")):
        cli(*MIRROR, "--by", by)
        for step in steps:
            cli("adopt", step, "outbox.messages")
        assert was != shape(seeded)
        assert "'outbox.messages': new rows are the old relay's again\n" == cli("adopt", "back", "outbox.messages")
        assert was == shape(seeded)
    audited = seeded.run("SELECT action, became ->> 'phase' FROM queue_message_audit ORDER BY id DESC LIMIT 4")
    assert [("adopt_back", None), ("adopt", "finished"), ("adopt", "switched"), ("adopt", "mirror")] == audited


def test_what_cannot_be_adopted_is_refused_in_one_sentence(cli: Cli, seeded: Seeded) -> None:
    """With what to do, and nothing is changed."""
    seeded.run("CREATE TABLE other (id uuid)")
    for words, sentence in {
        ("mirror", "kafka", "outbox.messages"): "There is no layout 'kafka'; there are debezium, ",
        ("mirror", "go-outbox", "other"): "has no primary key",
        ("mirror", "go-outbox", "queue_message_setting"): "has no column 'id', which the layout go-outbox reads",
        ("mirror", "go-outbox", "queue_message_dead_list"): "is no table",
        ("mirror", "debezium", "outboxevent"): "give --exchange",
        ("mirror", "debezium", "outboxevent", "--exchange", "{nope}"): "names the column 'nope'",
        ("mirror", "debezium", "outboxevent", "--exchange", "{id"): "a brace without a partner",
        ("mirror", "debezium", "outboxevent", "--exchange", "e", "--by", "trigger"): "needs a view",
        ("mirror", "go-outbox", "outbox.messages", "--set", "prefx=a"): "has no option 'prefx'; it knows prefix, version_separator, stream",
    }.items():
        assert sentence in cli.refused("adopt", *words, code=1)
    assert "--set must be NAME=VALUE" in cli.refused(*MIRROR, "--set", "prefix", code=2)
    cli(*MIRROR)
    assert "is adopted already and in the phase 'mirror'" in cli.refused(*MIRROR, code=1)
    assert "`relay adopt take` comes after 'switched'" in cli.refused("adopt", "take", "messages", code=1)


def test_a_login_that_owns_neither_side_is_told_so(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """Whatever else it may do."""
    with login(database_url, "queue_message_operator") as other:
        seeded.run("GRANT USAGE ON SCHEMA outbox TO PUBLIC")
        said = cli.refused(*MIRROR, code=1, RELAY_DATABASE_URL=other)
    assert "Your login does not own 'outbox.messages'" in said


def test_a_switch_gives_up_behind_a_long_transaction(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """After five seconds, so that applications do not wait behind it for longer, and it changes nothing."""
    cli(*MIRROR)
    with psycopg.connect(database_url) as writer:
        writer.execute(GO_OUTBOX.insert.encode(), go_outbox_row())
        assert "nothing was changed: try again" in cli.refused("adopt", "switch", "outbox.messages", code=1)
    assert "mirror" == cli.json("adopt", "list")[0]["phase"]


def runnable(script: str) -> str:
    """A printed script without what only psql knows."""
    return script.removeprefix("\\set ON_ERROR_STOP on\n")


def shape(seeded: Seeded) -> list[tuple[object, ...]]:
    """The table as the catalogue has it."""
    return seeded.run("""
        SELECT c.relkind, c.relacl::text, array(SELECT tgname FROM pg_trigger WHERE tgrelid = c.oid), to_regclass('outbox.messages_adopted')
        FROM pg_class c WHERE c.oid = 'outbox.messages'::regclass""")
