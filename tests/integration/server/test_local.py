"""Private servers: they start anywhere, survive their crashes, and leave nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from relay import devservers
from relay.devservers import find as local_find
from relay.devservers.process import free_ports, poll
from relay.errors import LocalServerError

_OWNER = """
import sys
from relay import devservers
with devservers.postgres(say=lambda line: None, private=True) as server:
    print(server.pid(), server.folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lines() -> list[str]:
    """What was said."""
    return []


@pytest.fixture
def private_postgres() -> Iterator[devservers.Postgres]:
    """A server that a test may harm."""
    with devservers.Postgres() as server:
        yield server


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def _answer(url: str) -> int:
    with psycopg.connect(url, connect_timeout=2) as connection:
        [answer] = connection.execute("SELECT 42").fetchone() or [0]
        return int(answer)


def test_a_private_postgres_says_what_it_is_and_answers(lines: list[str]) -> None:
    """The line names version, folder and port; the server answers under its URL."""
    with devservers.postgres(say=lines.append, private=True) as server:
        assert 42 == _answer(server.url)
        assert len(lines) == 1
        assert str(server.bin) in lines[0]
        assert str(server.port) in lines[0]


def test_settings_win_over_the_built_in_ones() -> None:
    """A setting given by the caller is in force in the server."""
    with (
        devservers.postgres(say=print, settings=["work_mem=7MB", "max_connections=33"], private=True) as server,
        psycopg.connect(server.url) as db,
    ):
        assert ("7MB",) == db.execute("SHOW work_mem").fetchone()
        assert ("33",) == db.execute("SHOW max_connections").fetchone()
        assert ("off",) == db.execute("SHOW fsync").fetchone()


def test_a_server_with_fsync_keeps_its_promise_to_the_disk() -> None:
    """With fsync=True nothing of durability is switched off."""
    with devservers.postgres(say=print, fsync=True, private=True) as server, psycopg.connect(server.url) as db:
        assert ("on",) == db.execute("SHOW fsync").fetchone()
        assert ("on",) == db.execute("SHOW full_page_writes").fetchone()


def test_the_users_own_settings_do_not_reach_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's environment holds no variable of the user's but PATH."""
    for name in ("PGHOST", "PGDATA", "PGOPTIONS", "RELAY_SCHEMA", "HOME"):
        monkeypatch.setenv(name, "/the-users-own")
    with devservers.postgres(say=print, private=True) as server:
        assert b"the-users-own" not in Path(f"/proc/{server.pid()}/environ").read_bytes()


def test_a_crashed_postgres_starts_again_with_what_was_committed(private_postgres: devservers.Postgres) -> None:
    """A crash ends the postmaster and its backends; the next start finds the committed rows under the same URL."""
    with psycopg.connect(private_postgres.url) as db:
        db.execute("CREATE TABLE kept AS SELECT 7 AS number")
    old = private_postgres.pid()

    private_postgres.crash()

    assert not _alive(old)
    with pytest.raises(psycopg.OperationalError):
        _answer(private_postgres.url)
    private_postgres.start()
    with psycopg.connect(private_postgres.url) as db:
        assert (7,) == db.execute("SELECT number FROM kept").fetchone()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restarted_postgres_is_another_process_on_the_same_port(private_postgres: devservers.Postgres, mode: devservers.Mode) -> None:
    """A restart replaces the postmaster and keeps the URL."""
    url, old = private_postgres.url, private_postgres.pid()

    private_postgres.restart(mode)

    assert (url, 42) == (private_postgres.url, _answer(url))
    assert old != private_postgres.pid()


def test_a_frozen_postgres_hangs_until_it_is_thawed(private_postgres: devservers.Postgres) -> None:
    """A frozen server accepts no connection. Once thawed, the same server continues."""
    old = private_postgres.pid()
    private_postgres.freeze()
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        _answer(private_postgres.url)

    private_postgres.thaw()

    assert (42, old) == (_answer(private_postgres.url), private_postgres.pid())


def test_a_closed_server_leaves_nothing_behind() -> None:
    """After `with`, the process, the port and the folder are free."""
    with devservers.Postgres() as server:
        pid, folder = server.pid(), server.folder

    assert not _alive(pid)
    assert not folder.exists()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_its_owner_however_the_owner_ends(end: signal.Signals) -> None:
    """Killed, terminated or interrupted: the owner's server and its folder go with it."""
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        pid, _, folder = (owner.stdout.readline() if owner.stdout else "").strip().partition(" ")
        assert _alive(int(pid))

        owner.send_signal(end)

        owner.wait(timeout=30)
    assert poll(lambda: not _alive(int(pid)) and not Path(folder).exists(), seconds=30)


def test_a_lent_database_server_gets_a_database_for_the_run(
    private_postgres: devservers.Postgres, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With TEST_DATABASE_URL everything happens in a database that is dropped afterwards, connections or not."""
    monkeypatch.setenv("TEST_DATABASE_URL", private_postgres.url)
    with devservers.postgres(say=lines.append) as lent:
        left_open = psycopg.connect(lent.url)
        [name] = left_open.execute("SELECT current_database()").fetchone() or [""]
        assert str(name).startswith("relay_")
        assert "TEST_DATABASE_URL" in lines[0]

    with psycopg.connect(private_postgres.url) as db:
        assert [("postgres",)] == db.execute("SELECT datname FROM pg_database WHERE NOT datistemplate").fetchall()
    left_open.close()


def test_a_lent_database_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable to correct."""
    [port] = free_ports(1)
    monkeypatch.setenv("TEST_DATABASE_URL", f"postgresql://nobody@127.0.0.1:{port}/none")
    with pytest.raises(LocalServerError, match="TEST_DATABASE_URL must name a server"), devservers.postgres(say=print):
        pass


def test_a_server_to_be_harmed_is_never_a_lent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """private=True ignores TEST_DATABASE_URL and TEST_AMQP_URL."""
    monkeypatch.setenv("TEST_DATABASE_URL", "postgresql://lent.invalid/x")
    monkeypatch.setenv("TEST_AMQP_URL", "amqp://lent.invalid/")

    assert isinstance(devservers.postgres(say=print, private=True), devservers.Postgres)
    assert isinstance(devservers.rabbitmq(say=print, private=True), devservers.RabbitMQ)


def test_without_installed_binaries_the_wheel_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where no PostgreSQL is installed, the one of the extra `local` runs, with pg_stat_statements."""
    monkeypatch.setattr(local_find, "_installed_postgres", list)
    monkeypatch.setattr(local_find, "_postgres_in_path", list)
    with devservers.postgres(say=print, private=True) as server, psycopg.connect(server.url) as db:
        assert "pginstall" in str(server.bin)
        assert ("pg_stat_statements",) == db.execute("SHOW shared_preload_libraries").fetchone()


def test_without_any_binaries_the_error_is_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is found, the user reads what to install."""
    monkeypatch.delenv("TEST_POSTGRES_BIN", raising=False)
    for place in ("_installed_postgres", "_postgres_in_path", "_postgres_in_wheels"):
        monkeypatch.setattr(local_find, place, list)
    with pytest.raises(LocalServerError, match=r"type: pip install 'outbox-relay\[local\]'"):
        devservers.postgres(say=print)


def test_ports_are_never_those_of_outgoing_connections() -> None:
    """A client that reconnects for ever cannot be given the port of the server that it waits for."""
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    ports = free_ports(50)

    assert 50 == len({*ports})
    assert max(ports) < lowest_outgoing


def test_tests_may_name_the_programs_of_a_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TEST_POSTGRES_BIN and TEST_RABBITMQ_ROOT go before everything installed, and what is not there is said, not replaced."""
    scripts = tmp_path / "usr/lib/rabbitmq/lib/rabbitmq_server-9.8.7/sbin"
    for program in (tmp_path / "postgres", tmp_path / "initdb", scripts / "rabbitmq-server"):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch()
    monkeypatch.setenv("TEST_POSTGRES_BIN", str(tmp_path))
    monkeypatch.setenv("TEST_RABBITMQ_ROOT", str(tmp_path))
    assert tmp_path == local_find.find_postgres()
    found = local_find.find_rabbitmq()
    assert ("9.8.7", str(tmp_path)) == (found.version, found.command("rabbitmqctl", "status")[-3])
    assert [f"/{scripts.relative_to(tmp_path)}/rabbitmqctl", "status"] == found.command("rabbitmqctl", "status")[-2:]

    monkeypatch.setenv("TEST_POSTGRES_BIN", "/nowhere")
    monkeypatch.setenv("TEST_RABBITMQ_ROOT", "/nowhere")
    with pytest.raises(LocalServerError, match="TEST_POSTGRES_BIN names /nowhere"):
        local_find.find_postgres()
    with pytest.raises(LocalServerError, match="TEST_RABBITMQ_ROOT names /nowhere"):
        local_find.find_rabbitmq()
