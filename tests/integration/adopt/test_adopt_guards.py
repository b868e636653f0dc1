"""Coming from another outbox whose table has something of its own in the way: nothing is sent twice, and no name runs as SQL."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.applications.other_outboxes import DEBEZIUM, GO_OUTBOX, LARAVEL, debezium_row, go_outbox_row, laravel_row
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

KEEPS = """
    CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER keeps BEFORE DELETE ON {} FOR EACH ROW EXECUTE FUNCTION keeps();
"""
"""Keeps rows that a DELETE would remove."""


def test_a_row_that_its_table_keeps_becomes_no_message_too(cli: Cli, seeded: Seeded) -> None:
    """The old relay would send it as well: the insert is refused after the switch, in one sentence."""
    seeded.run(GO_OUTBOX.definition)
    cli("adopt", "mirror", "go-outbox", GO_OUTBOX.table)
    cli("adopt", "switch", GO_OUTBOX.table)
    seeded.run(KEEPS.format(GO_OUTBOX.table))
    with pytest.raises(psycopg.errors.RestrictViolation, match="keeps rows in"):
        seeded.named(GO_OUTBOX.insert, go_outbox_row())
    assert [(0, 0)] == seeded.run("SELECT (SELECT count(*) FROM queue_message), (SELECT count(*) FROM outbox.messages)")


@pytest.mark.parametrize("by", ["trigger", "view"])
def test_what_cannot_be_deleted_is_not_taken(cli: Cli, seeded: Seeded, by: str) -> None:
    """Neither once nor for ever."""
    seeded.run(LARAVEL.definition)
    seeded.named(LARAVEL.insert, laravel_row())
    cli("adopt", "mirror", "laravel-jobs", "jobs", "--by", by)
    cli("adopt", "switch", "jobs")
    seeded.run(KEEPS.format("jobs" if by == "trigger" else "jobs_adopted"))
    assert "keeps rows in" in cli.refused("adopt", "take", "jobs", code=1)
    assert [(0, 1)] == seeded.run("SELECT (SELECT count(*) FROM queue_message), (SELECT count(*) FROM jobs)")


def test_a_row_whose_message_a_trigger_skips_is_archived_rejected(cli: Cli, seeded: Seeded) -> None:
    """Before the switch it is noted; after it the row is nowhere else."""
    seeded.run(GO_OUTBOX.definition)
    cli("adopt", "mirror", "go-outbox", GO_OUTBOX.table)
    seeded.run(KEEPS.format("queue_message").replace("DELETE", "INSERT"))
    seeded.named(GO_OUTBOX.insert, go_outbox_row())
    words = "A trigger of queue_message skips the INSERT without an error."
    assert [(words,)] == seeded.run("SELECT problem FROM queue_message_adoption_seen")
    seeded.run(f"DELETE FROM {GO_OUTBOX.table}")
    cli("adopt", "switch", GO_OUTBOX.table)
    seeded.named(GO_OUTBOX.insert, go_outbox_row())
    assert [("rejected", "refused", words)] == seeded.run("SELECT result, error_code, error_detail FROM queue_message_archive")
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message")


def test_no_name_ends_the_text_that_it_stands_in(cli: Cli, seeded: Seeded) -> None:
    """A column or a template with the mark that a function's body ends with is refused; nothing of it runs."""
    seeded.run(LARAVEL.definition)
    ends = "x'; END $adopt$; CREATE TABLE public.forged (); --"
    assert "$adopt$" in cli.refused("adopt", "mirror", "laravel-jobs", "jobs", "--exchange", ends, code=1)
    seeded.run('ALTER TABLE jobs ADD COLUMN "a$adopt$; CREATE TABLE public.forged (); --" int NOT NULL DEFAULT 1')
    assert "$adopt$" in cli.refused("adopt", "mirror", "laravel-jobs", "jobs", "--by", "view", code=1)
    assert [(None,)] == seeded.run("SELECT to_regclass('public.forged')::text")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ALTER TABLE jobs ENABLE ROW LEVEL SECURITY", "row level security"),
        ("ALTER TABLE jobs ADD COLUMN loud text GENERATED ALWAYS AS (upper(queue)) STORED", "a generated column"),
    ],
)
def test_a_table_that_no_view_can_replace_is_refused_by_view_alone(cli: Cli, seeded: Seeded, change: str, words: str) -> None:
    """A view would show what policies hide, and leave generated columns empty; a trigger does neither."""
    seeded.run(LARAVEL.definition)
    seeded.run(change)
    assert words in cli.refused("adopt", "mirror", "laravel-jobs", "jobs", "--by", "view", code=1)
    cli("adopt", "mirror", "laravel-jobs", "jobs")
    cli("adopt", "switch", "jobs")
    seeded.named(LARAVEL.insert, laravel_row())
    assert [(1, 0)] == seeded.run("SELECT (SELECT count(*) FROM queue_message), (SELECT count(*) FROM jobs)")


def test_a_number_of_an_identity_that_is_always_made_stays_with_its_row(cli: Cli, seeded: Seeded) -> None:
    """A row that is the old relay's reaches the table under the view, with the number that the view gave it."""
    seeded.run(LARAVEL.definition)
    seeded.run("ALTER TABLE jobs DROP COLUMN id, ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY (START 7) PRIMARY KEY")
    cli("adopt", "mirror", "laravel-jobs", "jobs", "--by", "view")
    cli("adopt", "switch", "jobs")
    seeded.named(LARAVEL.insert, laravel_row(attempts=1))
    assert [(7, 1)] == seeded.run("SELECT id, attempts FROM jobs_adopted")


def test_an_owner_who_may_not_see_new_messages_is_told_what_to_grant(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """The view shows a transaction its own rows with the rights of the table's owner."""
    seeded.run(DEBEZIUM.definition)
    mirror = ("adopt", "mirror", "debezium", "outboxevent", "--exchange", "events")
    with login(database_url) as app:
        who = conninfo_to_dict(app)["user"]
        seeded.run(f"GRANT CREATE ON SCHEMA public TO {who}; ALTER TABLE outboxevent OWNER TO {who}")
        assert f'SELECT (id, xid) ON "public"."queue_message" to {who}.' in cli.refused(*mirror, code=1)
        seeded.run(f"GRANT SELECT (id, xid) ON queue_message TO {who}")
        cli(*mirror)
        cli("adopt", "switch", "outboxevent")
        with psycopg.connect(app) as connection:
            row = debezium_row()
            connection.execute(DEBEZIUM.insert, row)
            assert 1 == connection.execute("DELETE FROM outboxevent WHERE id = %s", [row["id"]]).rowcount
        cli("adopt", "back", "outboxevent")
        seeded.run(f"ALTER TABLE outboxevent OWNER TO CURRENT_USER; DROP OWNED BY {who}")
