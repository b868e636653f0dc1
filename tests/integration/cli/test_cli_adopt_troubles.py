"""relay adopt where names are hostile, tables are gone, or somebody else should have typed it."""

from __future__ import annotations

import pytest
from psycopg import sql

from tests.support.applications.other_outboxes import DEBEZIUM, GO_OUTBOX, go_outbox_row
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

HOSTILE = ("%s @kept@ {x} \n 'q'", '$$; SELECT 1/0; --"')


@pytest.fixture
def seeded(seeded: Seeded) -> Seeded:
    """A database with the tables of two other systems."""
    seeded.run(GO_OUTBOX.definition)
    seeded.run(DEBEZIUM.definition)
    return seeded


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_ends_the_quotes_of_a_step(cli: Cli, seeded: Seeded, name: str) -> None:
    """Of a table, a column or a template: it is a name in every step."""
    written = sql.Identifier(name).as_string(None)
    seeded.run(
        f"CREATE TABLE {written} (LIKE outboxevent INCLUDING ALL); ALTER TABLE {written} ADD COLUMN {written} integer NOT NULL DEFAULT 7"
    )
    cli("adopt", "mirror", "debezium", written, "--exchange", name.replace("{x}", "{aggregatetype}"))
    insert = f"INSERT INTO {written} (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'a', 'b', 'c')"
    for steps in ("switch", "finish"):
        seeded.run(insert)
        cli("adopt", steps, written)
    seeded.run(insert)
    assert [(name.replace("{x}", "a"), 2)] == seeded.run("SELECT exchange, count(*) FROM queue_message GROUP BY exchange")
    cli("adopt", "back", written)
    assert [(1,)] == seeded.run(f"SELECT count(*) FROM {written}")


@pytest.mark.parametrize("again", ["", GO_OUTBOX.definition])
@pytest.mark.parametrize("by", ["trigger", "view"])
def test_a_table_that_was_dropped_hides_no_other_and_is_forgotten_by_back(cli: Cli, seeded: Seeded, by: str, again: str) -> None:
    """`adopt back` also drops its functions, even where another table has its name by now. The other adoption continues."""
    cli("adopt", "mirror", "go-outbox", "outbox.messages", "--by", by)
    cli("adopt", "mirror", "debezium", "outboxevent", "--exchange", "e")
    cli("adopt", "switch", "outbox.messages")
    seeded.run(f"DROP TABLE outbox.messages{'_adopted' if by == 'view' else ''} CASCADE")
    seeded.run(f"DROP SCHEMA outbox CASCADE; {again}" if again else "SELECT")
    assert "adopt back" in cli.refused("adopt", "take", "outbox.messages", code=1)
    assert [("switched", True), ("mirror", False)] == [(one["phase"], one["gone"]) for one in cli.json("adopt", "list")]
    assert '"outbox"."messages" is gone: rename it back, or, if it was dropped, let `relay adopt back` forget it\n' in cli("adopt", "list")
    assert "'outbox.messages' was dropped, and is forgotten\n" == cli("adopt", "back", "outbox.messages")
    assert ["outboxevent"] == [one["table"].split('"')[3] for one in cli.json("adopt", "list")]
    assert [(1,)] == seeded.run("SELECT count(DISTINCT left(proname, 31)) FROM pg_proc WHERE proname ~ 'message_from'")


def test_a_table_that_was_renamed_is_not_forgotten(cli: Cli, seeded: Seeded) -> None:
    """Its trigger still leads rows away: they are messages until it has its name again and goes back."""
    cli("adopt", "mirror", "go-outbox", "outbox.messages")
    cli("adopt", "switch", "outbox.messages")
    seeded.run("ALTER TABLE outbox.messages RENAME TO elsewhere")
    assert "is called outbox.elsewhere now: rename it back" in cli.refused("adopt", "back", "outbox.messages", code=1)
    seeded.run("ALTER TABLE outbox.elsewhere RENAME TO messages")
    seeded.named(GO_OUTBOX.insert, go_outbox_row())
    cli("adopt", "back", "outbox.messages")
    assert [(1, 0)] == seeded.run("SELECT (SELECT count(*) FROM queue_message), (SELECT count(*) FROM outbox.messages)")


def test_who_may_not_adopt_is_sent_to_the_owner(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """A role that does not help is not named."""
    with login(database_url) as nobody:
        for words in (("list",), ("back", "outboxevent")):
            assert "run this as the owner" in cli.refused("adopt", *words, code=1, RELAY_DATABASE_URL=nobody)


def test_what_is_not_there_has_the_exit_code_of_that(cli: Cli, seeded: Seeded) -> None:
    """3, as docs/cli.md says; and a name that is none says so."""
    for words in (("switch", "nothing"), ("mirror", "go-outbox", "nothing"), ("back", "outboxevent")):
        assert f"able '{words[-1]}'" in cli.refused("adopt", *words, code=3)
    for words in (("switch", ""), ("mirror", "go-outbox", ""), ("mirror", "go-outbox", "a.b.c.d")):
        assert "is no name of a table: write it as SQL does" in cli.refused("adopt", *words, code=1)


def test_a_check_prints_no_sql(cli: Cli, seeded: Seeded) -> None:
    """A caller who asks for both gets an error, not one of the two."""
    said = cli.refused("adopt", "mirror", "go-outbox", "outbox.messages", "--check", "--sql", code=2)
    assert "--check runs nothing that --sql could print" in said
