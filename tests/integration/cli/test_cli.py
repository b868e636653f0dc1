"""The command line as a whole: help, settings, errors as one sentence, exit codes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from relay import __version__, devservers
from relay.cli.commands import status as cli_status
from relay.cli.main import app
from relay.postgres.schema.sql_files import migrations
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

NOWHERE = "postgresql://nobody:hunter2@127.0.0.1:1/nothing"
COMMANDS = [
    ["status"],
    ["enqueue", "orders", "key", "1"],
    ["dead", "list"],
    ["key", "list"],
    ["config", "list"],
    ["replay", "--from", "1h"],
]


def test_help_is_there_before_a_person_notices() -> None:
    """It loads at most 450 modules (392 of Python 3.11, Typer and ours): no command's own imports, no database, no broker."""
    heavy = ["psycopg", "pydantic", "pydantic_settings", "aio_pika", "uvicorn", "structlog"]
    code = f"""import atexit, sys
atexit.register(lambda: print(len(sys.modules), [name for name in {heavy} if name in sys.modules], file=sys.stderr))
from relay.cli.main import main
main()"""

    loaded, found = subprocess.run([sys.executable, "-c", code, "--help"], check=True, capture_output=True, text=True).stderr.split(
        maxsplit=1
    )

    assert "[]" == found.strip()
    assert int(loaded) <= 450


def test_version_needs_no_settings() -> None:
    """It is printed and nothing else happens."""
    result = CliRunner().invoke(app, ["--version"], env={"RELAY_BATCH_SIZE": "x"})

    assert (0, f"outbox-relay {__version__}\n") == (result.exit_code, result.stdout)


def test_migrate_says_what_it_applied_and_check_whether_it_is_needed(empty_cli: Cli) -> None:
    """--check exits 1 and names what is missing, and 0 once the schema is up to date."""
    names = [migration.name for migration in migrations()]
    assert "not up to date" in empty_cli.refused("migrate", "--check", code=1)

    applied = empty_cli("migrate").splitlines()

    assert [*(f"applied {name}" for name in names), "the schema is up to date"] == applied
    assert "the schema is up to date\n" == empty_cli("migrate", "--check") == empty_cli("migrate")


def test_check_says_what_is_in_the_way_and_what_is_taken_over(empty_cli: Cli) -> None:
    """As migrate then does it; nothing is changed, and once it is done there is no word of it."""
    url = empty_cli.env["RELAY_DATABASE_URL"]
    names = ", ".join(migration.name for migration in migrations())
    with psycopg.connect(url, autocommit=True) as database:
        database.execute('CREATE TABLE queue_message (id int, "x\ny" varchar)')
        refused = empty_cli.refused("migrate", "--check", code=1)
        sentence = (
            'There is a queue_message in schema "public" that is not the relay\'s (id integer, x y text): rename it, or name another schema'
        )
        assert f"{sentence} in RELAY_SCHEMA. Then run `relay migrate`: {names}." == refused
        assert refused.startswith(empty_cli.refused("migrate", code=1))

        database.execute("DROP TABLE queue_message")
        columns = "id uuid PRIMARY KEY DEFAULT gen_random_uuid(), exchange text, routing_key text, content jsonb, options jsonb"
        database.execute(f"CREATE TABLE queue_message ({columns})".encode())
        database.execute("INSERT INTO queue_message (exchange, routing_key, content) SELECT 'e', 'k', '{}' FROM generate_series(1, 3)")
        with login(url) as theirs:
            others = empty_cli.refused("migrate", "--check", code=1, RELAY_DATABASE_URL=theirs)
        taken = empty_cli.refused("migrate", "--check", code=1)

    words = f"The schema is not up to date, run `relay migrate`: {names}. It takes over the queue_message that is there, with"
    assert (f"{words} 3 rows.", f"{words} its rows.") == (taken, others)
    empty_cli("migrate")
    assert "Messages taken over: 3," in empty_cli.stderr
    assert "the schema is up to date\n" == empty_cli("migrate", "--check")


def test_a_lock_in_the_way_says_what_to_do(cli: Cli) -> None:
    """Where the server, the login or a function has a lock_timeout."""
    url = cli.env["RELAY_DATABASE_URL"]
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE queue_message_pause")
        sentence = cli.refused("pause", "x", code=1, RELAY_DATABASE_URL=make_conninfo(url, options="-c lock_timeout=50ms"))

    assert sentence.startswith("Another session holds a lock that this needs, and nothing was changed: try again")
    assert "pg_stat_activity" in sentence


def test_migrate_and_check_say_so_where_the_roles_are_missing(say: Callable[[str], None], tmp_path: Path) -> None:
    """--check exits 1 with what to run; migrate itself has done what it may."""
    with devservers.postgres(say=say, private=True) as server, psycopg.connect(server.url, autocommit=True) as superuser:
        superuser.execute("CREATE ROLE someone LOGIN PASSWORD 'x'")
        superuser.execute("CREATE DATABASE theirs OWNER someone")
        theirs = Cli(make_conninfo(server.url, dbname="theirs", user="someone", password="x"), tmp_path)

        assert theirs("migrate").endswith("\nthe schema is up to date, its roles are not\n")
        assert "let somebody with CREATEROLE run: CREATE ROLE queue_message_theirs_public_consumer NOLOGIN;" in theirs.stderr
        missing = theirs.refused("migrate", "--check", code=1)

    assert missing.startswith(
        "The schema is up to date, its roles are not. Roles or their members are missing: let somebody with CREATEROLE run `CREATE ROLE"
    )


def test_migrate_prints_the_sql_for_a_dba_and_runs_nothing(empty_cli: Cli) -> None:
    """What is missing is printed as one transaction for psql; behind it come one that takes rights of former roles, and pg_cron's jobs."""
    printed = empty_cli("migrate", "--sql")

    assert "CREATE TABLE" in printed
    assert 2 == printed.count("\nCOMMIT;\n")
    order = [printed.index("CREATE TABLE"), printed.index("\nCOMMIT;\n"), printed.rindex("REVOKE ALL ON"), printed.rindex("pg_cron")]
    assert sorted(order) == order
    assert "not up to date" in empty_cli.refused("migrate", "--check", code=1)


def test_migrate_seeds_the_policy_that_the_environment_sets(empty_cli: Cli) -> None:
    """The database's value is the one that then holds."""
    empty_cli("migrate", RELAY_MAX_ATTEMPTS="3")

    assert {"3"} == {row["value"] for row in empty_cli.json("config", "list") if row["name"] == "max_attempts"}


@pytest.mark.parametrize("command", [*COMMANDS, ["migrate"], ["dead", "watch"]], ids=" ".join)
def test_a_database_that_does_not_answer_is_one_sentence_and_exit_4(cli: Cli, command: list[str]) -> None:
    """It says what to check, and keeps the password to itself."""
    sentence = cli.refused(*command, code=4, RELAY_DATABASE_URL=NOWHERE)

    assert "PostgreSQL does not answer" in sentence
    assert "RELAY_DATABASE_URL" in sentence
    assert "hunter2" not in sentence


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_missing_schema_is_one_sentence_and_exit_1(empty_cli: Cli, command: list[str]) -> None:
    """It says to run relay migrate."""
    assert "relay migrate" in empty_cli.refused(*command, code=1)


@pytest.mark.parametrize("command", ["status", "run", "migrate"])
def test_wrong_settings_are_all_listed_and_exit_2(cli: Cli, command: str) -> None:
    """Each in a line of its own, unknown ones too."""
    cli(command, code=2, RELAY_BATCH_SIZE="many", RELAY_SCHEMAS="public")

    assert ["RELAY_BATCH_SIZE", "RELAY_SCHEMAS"] == sorted(line.split()[0] for line in cli.stderr.splitlines())


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["nonsense"], "No such command 'nonsense'. See `relay --help`."),
        (["enqueue", "orders"], "See `relay enqueue --help`."),
        (["show", "seven"], "ID must be an id such as"),
        (["dead", "list", "--result", "lost"], "'lost' is not one of 'rejected', 'failed', 'lock_expired'"),
        (["status", "--interval", "0"], "--interval must be a number from 0.1 to 3600"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(cli: Cli, command: list[str], says: str) -> None:
    """It names what is wrong and where the help is."""
    assert says in cli.refused(*command, code=2)


def test_a_role_without_permission_is_told_which_role_it_needs(cli: Cli) -> None:
    """A producer may enqueue and not look."""
    with login(cli.env["RELAY_DATABASE_URL"], "queue_message_producer") as url:
        cli("enqueue", "orders", "key", "1", RELAY_DATABASE_URL=url)
        assert "let the schema's owner run `relay grant operator LOGIN` (" in cli.refused("dead", "list", code=1, RELAY_DATABASE_URL=url)
    with login(cli.env["RELAY_DATABASE_URL"], "queue_message_operator") as url:
        assert "`relay grant producer LOGIN` (" in cli.refused("enqueue", "orders", "key", "1", code=1, RELAY_DATABASE_URL=url)
        assert "`relay grant producer LOGIN` (" in cli.refused("enqueue", "orders", "key", code=1, stdin="1\n", RELAY_DATABASE_URL=url)


def test_a_value_that_the_driver_refuses_is_no_lost_connection(cli: Cli) -> None:
    """It is said of the value, and the exit code is that of a refusal."""
    assert "NUL" in cli.refused("pause", "a\0b", code=1)


def test_a_login_that_may_not_connect_is_told_what_it_lacks(cli: Cli, seeded: Seeded) -> None:
    """PostgreSQL answers, so it is not said that it does not."""
    [(database,)] = seeded.run("SELECT quote_ident(current_database())")
    seeded.run(f"REVOKE CONNECT ON DATABASE {database} FROM PUBLIC")
    with login(cli.env["RELAY_DATABASE_URL"]) as url:
        assert "GRANT CONNECT ON DATABASE" in cli.refused("status", code=4, RELAY_DATABASE_URL=url)


@pytest.mark.parametrize("sslmode", ["prefer", "require", "disable"])
def test_another_server_on_the_port_is_told_from_wrong_tls(cli: Cli, amqp_url: str, sslmode: str) -> None:
    """The broker's port in RELAY_DATABASE_URL: the first thing that goes wrong with two servers."""
    broker = urlsplit(amqp_url)

    sentence = cli.refused("status", code=4, RELAY_DATABASE_URL=f"postgresql://a:b@{broker.hostname}:{broker.port}/c?sslmode={sslmode}")

    assert sentence.startswith("No PostgreSQL answers there: correct the host and the port in RELAY_DATABASE_URL")


def test_an_operators_role_is_enough_for_every_look_and_answer(cli: Cli) -> None:
    """Nothing needs the owner, nor the right to read contents."""
    with login(cli.env["RELAY_DATABASE_URL"], "queue_message_operator") as url:
        for command in [
            *COMMANDS,
            ["pause", "x"],
            ["resume", "x"],
            ["key", "park", "k"],
            ["key", "resume", "k"],
            ["dead", "watch", "--once"],
        ]:
            if command[0] != "enqueue":
                cli(*command, RELAY_DATABASE_URL=url)
        assert "max_attempts is 5 (was 12)\n" == cli("config", "set", "max_attempts", "5", RELAY_DATABASE_URL=url)


def test_an_error_that_nobody_foresaw_is_a_sentence_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its type is named; its text, which may hold a payload, is not."""

    def fail(*_: object, **__: object) -> None:
        raise LookupError("payload")

    monkeypatch.setattr(cli_status, "read_status", fail)

    sentence = cli.refused("status", code=1)
    assert "LookupError" in sentence
    assert "payload" not in sentence


def test_ctrl_c_ends_a_command_without_a_word(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is a shell's own for it."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_status, "read_status", interrupt)

    assert "" == cli("status", code=130)
    assert "" == cli.stderr
