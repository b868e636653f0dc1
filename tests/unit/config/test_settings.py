"""Settings: where they come from, what they may be, and how mistakes are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.config.settings import Settings, load
from relay.engine.policy import parse_unroutable
from relay.errors import SettingsError

SECRET = "hunter2-canary"


def mistakes(env_file: Path | None = None, **environ: str) -> list[str]:
    """Lines of the error that these variables cause."""
    with pytest.raises(SettingsError) as caught:
        load(environ, env_file)
    assert caught.value.exit_code == 2
    return str(caught.value).splitlines()


def test_a_window_smaller_than_a_claim_is_no_contradiction() -> None:
    """One setting is enough for fewer duplicates after a crash: a claim never takes more than the window."""
    assert (50, 1000) == ((settings := load({"RELAY_WINDOW": "50"}, None)).window, settings.batch_size)


@pytest.mark.ids("C10")
def test_without_any_variable_the_broker_is_a_guest_on_localhost_and_libpq_finds_the_database() -> None:
    """An empty environment gives the guest URL and an empty conninfo, which leaves everything to PG* variables."""
    settings = load({}, None)

    assert "amqp://guest:guest@localhost/" == settings.amqp_url.get_secret_value()
    assert ("", None) == (settings.conninfo, settings.listen_url)
    assert (1000, 4000, 30, 1, "idle", 12) == (
        settings.batch_size, settings.window, settings.lock_seconds, settings.poll_interval, settings.notify, settings.max_attempts
    )  # fmt: skip


@pytest.mark.ids("C10")
def test_amqp_url_holds_until_relay_amqp_url_is_set() -> None:
    """The usual variable is heard, and the relay's own one goes before it."""
    usual = {"AMQP_URL": "amqp://usual/"}

    assert "amqp://usual/" == load(usual, None).amqp_url.get_secret_value()
    assert "amqps://own/" == load({**usual, "RELAY_AMQP_URL": "amqps://own/"}, None).amqp_url.get_secret_value()


def test_the_environment_goes_before_the_env_file(tmp_path: Path) -> None:
    """A .env fills in what the environment leaves open, and other programs' variables in it are none of our business."""
    env_file = tmp_path / ".env"
    env_file.write_text("RELAY_NAME=file\nRELAY_WINDOW=777\nDJANGO_DEBUG=1\nRELAY_DATABASE_URL=dbname=file\n")
    password = tmp_path / "database_url"
    password.write_text("dbname=secret\n")

    settings = load({"RELAY_NAME": "environment", "RELAY_DATABASE_URL_FILE": str(password)}, env_file)

    assert ("environment", 777, "dbname=secret") == (settings.name, settings.window, settings.conninfo)


@pytest.mark.parametrize("name", ["RELAY_DATABASE_URL", "RELAY_LISTEN_URL", "RELAY_AMQP_URL", "AMQP_URL"])
def test_a_secret_may_stand_in_a_file(tmp_path: Path, name: str) -> None:
    """NAME_FILE names a file whose text, without the newline at its end, is the value."""
    url = f"amqp://relay:{SECRET}@host/" if "AMQP" in name else f"postgresql://relay:{SECRET}@host/queue"
    (tmp_path / "secret").write_text(f"{url}\n")

    settings = load({f"{name}_FILE": str(tmp_path / "secret")}, None)

    assert url in {secret and secret.get_secret_value() for secret in (settings.database_url, settings.listen_url, settings.amqp_url)}


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    """Neither repr nor str nor an error sentence repeats a password."""
    url = f"postgresql://relay:{SECRET}@host/queue"
    settings = load({"RELAY_DATABASE_URL": url, "AMQP_URL": f"amqp://u:{SECRET}@h/", "RELAY_LISTEN_URL": url}, None)
    (tmp_path / "bad").write_text(f"mysql:{SECRET}")
    lines = mistakes(
        RELAY_DATABASE_URL=f"host={SECRET} nonsense", AMQP_URL=f"http://{SECRET}@h", RELAY_LISTEN_URL_FILE=str(tmp_path / "bad")
    )

    assert SECRET not in f"{settings!r} {settings} {settings.model_dump()}"
    assert 3 == len(lines)
    assert SECRET not in "".join(lines)


def test_every_mistake_is_told_at_once_in_a_sentence_of_its_own() -> None:
    """An operator need not correct one setting to hear of the next one."""
    nowhere = "No such file or directory"
    lines = mistakes(
        RELAY_WINDO="5", RELAY_NOTIFY="sometimes", RELAY_POLL_INTERVAL="nan", RELAY_MAX_ATTEMPTS="0", RELAY_BACKOFF_BASE="700",
        RELAY_HTTP_PORT="65536", RELAY_SCHEMA="a\nb", RELAY_AMQP_URL_FILE="/nowhere/secret",
    )  # fmt: skip

    assert sorted(lines) == sorted([
        "RELAY_WINDO is no setting: did you mean RELAY_WINDOW?",
        "RELAY_NOTIFY is 'sometimes': it must be one of idle, always, off.",
        "RELAY_POLL_INTERVAL is 'nan': it must be a number from 0.05 to 3600.",
        "RELAY_MAX_ATTEMPTS is '0': it must be a whole number from 1 to 1000000.",
        "RELAY_BACKOFF_BASE is 700 and RELAY_BACKOFF_MAX is 600: the first wait must not be longer than the longest.",
        "RELAY_HTTP_PORT is '65536': it must be a whole number from 0 to 65535 or empty.",
        "RELAY_SCHEMA is 'a\\nb': it must be 1 to 63 printable characters.",
        f"RELAY_AMQP_URL_FILE is '/nowhere/secret', which cannot be read ({nowhere}): name a readable file that holds RELAY_AMQP_URL.",
    ])  # fmt: skip


@pytest.mark.parametrize("name", ["RELAY_ZZZZZZ", "RELAY_TYPO", "RELAY_FOO", "RELAY_TIMEOUT", "RELAY_DEBUG", "RELAY_"])
def test_a_name_that_resembles_nothing_is_an_error_too(name: str) -> None:
    """A variable with our prefix that no setting reads is a mistake, also in a .env; the prefix resembles nothing."""
    [line] = mistakes(None, **{name: "1"})

    assert line.startswith(f"{name} is no setting: remove it")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("BATCHSIZE", "BATCH_SIZE"),
        ("PORT", "HTTP_PORT"),
        ("DB_URL", "DATABASE_URL"),
        ("AMQP_URL_FIEL", "AMQP_URL_FILE"),
        ("LOGLEVEL", "LOG_LEVEL"),
    ],
)
def test_a_name_that_resembles_one_is_told_which(name: str, meant: str) -> None:
    """Slips and other programs' habits."""
    assert [f"RELAY_{name} is no setting: did you mean RELAY_{meant}?"] == mistakes(None, **{f"RELAY_{name}": "1"})


def test_variables_of_a_kubernetes_service_named_relay_are_nobodys_mistake() -> None:
    """Kubernetes sets them in every pod of the namespace."""
    links = {
        "RELAY_SERVICE_HOST": "10.0.0.1", "RELAY_SERVICE_PORT": "80", "RELAY_SERVICE_PORT_HTTP": "80", "RELAY_PORT": "tcp://10.0.0.1:80",
        "RELAY_PORT_80_TCP": "tcp://10.0.0.1:80", "RELAY_PORT_80_TCP_ADDR": "10.0.0.1", "RELAY_METRICS_SERVICE_HOST": "10.0.0.2",
    }  # fmt: skip

    assert Settings() == load(links, None)


def test_an_empty_variable_counts_as_unset_except_for_the_port() -> None:
    """Compose files pass empty variables on; an empty port turns the HTTP side off."""
    settings = load({"RELAY_NAME": "", "RELAY_WINDOW": "", "RELAY_HTTP_PORT": ""}, None)

    assert (4000, None, {}) == (settings.window, settings.http_port, settings.policy())
    assert 0 == load({}, None).http_port


def test_a_secret_and_its_file_together_are_refused(tmp_path: Path) -> None:
    """Which of the two holds must not be a guess."""
    (tmp_path / "secret").write_text("dbname=a")

    [line] = mistakes(RELAY_DATABASE_URL="dbname=b", RELAY_DATABASE_URL_FILE=str(tmp_path / "secret"))

    assert "RELAY_DATABASE_URL and RELAY_DATABASE_URL_FILE are both set: keep one of them." == line


def test_an_unreadable_env_file_is_a_sentence(tmp_path: Path) -> None:
    """A .env that is no text does not end in a traceback."""
    (tmp_path / ".env").write_bytes(b"\xff\xfe")

    [line] = mistakes(tmp_path / ".env")

    assert line.endswith("cannot be read (not a text in UTF-8): correct or remove it.")


@pytest.mark.ids("A26")
def test_a_drain_that_outlasts_the_locks_is_refused_and_the_default_is_not() -> None:
    """Other relays would take over what this one still waits for."""
    [line] = mistakes(RELAY_LOCK_SECONDS="10", RELAY_DRAIN_SECONDS="9")

    assert line.startswith("RELAY_DRAIN_SECONDS is 9 and RELAY_LOCK_SECONDS is 10: drain for 8 at most")
    assert 20 == load({"RELAY_LOCK_SECONDS": "10"}, None).drain_seconds


def test_a_contradiction_is_not_told_of_a_value_that_is_wrong_by_itself() -> None:
    """One mistake gives one sentence."""
    assert ["RELAY_WINDOW is 'x': it must be a whole number from 1 to 100000."] == mistakes(RELAY_WINDOW="x", RELAY_BATCH_SIZE="5000")


@pytest.mark.ids("C15")
def test_unroutable_takes_exceptions_by_exchange() -> None:
    """A default and any number of exchange=word, spaces allowed; the default exchange has an empty name."""
    assert ("retry", {"audit": "accept", "": "reject"}) == parse_unroutable("retry, audit=accept,=reject")
    assert ("retry", {"audit": "accept"}) == parse_unroutable("audit=accept")
    assert "reject,audit=accept" == Settings(unroutable=" audit = accept , reject").unroutable


@pytest.mark.parametrize("text", ["", "never", "retry,audit=never", "retry,reject", "a=b=retry", "a=retry,a=reject", ","])
def test_a_policy_that_says_two_things_or_none_is_refused(text: str) -> None:
    """What a message's fate depends on must be clear."""
    with pytest.raises(ValueError, match="is no policy or contradicts another part"):
        parse_unroutable(text)


def test_policy_is_what_was_set_on_purpose() -> None:
    """Defaults do not seed the database; numbers are written as it takes them."""
    settings = load({"RELAY_LOCK_SECONDS": "30.50", "RELAY_ARCHIVE": "failures", "RELAY_WINDOW": "3000"}, None)

    assert {"lock_seconds": "30.5", "archive": "failures"} == settings.policy()


def test_the_databases_policy_holds_and_every_difference_is_named() -> None:
    """A relay whose environment says otherwise follows the database; spelling alone is no difference."""
    settings = load({"RELAY_LOCK_SECONDS": "30", "RELAY_MAX_ATTEMPTS": "3"}, None)
    database = {"lock_seconds": "30.0", "max_attempts": "5", "archive": "failures", "export_registered": "true"}

    held = settings.under(database)

    assert (30, 5, "failures", 4000) == (held.lock_seconds, held.max_attempts, held.archive, held.window)
    assert [("max_attempts", "3", "5")] == settings.overruled(database)


def test_a_policy_from_the_future_is_a_sentence() -> None:
    """A word that a newer version wrote does not end in a traceback."""
    with pytest.raises(SettingsError, match=r"values that this relay does not know \(notify\): install a newer"):
        Settings().under({"notify": "telepathy"})


def test_settings_by_argument_read_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the machine cannot reach what a caller made by hand."""
    monkeypatch.setenv("RELAY_WINDOW", "7")
    monkeypatch.setenv("window", "7")

    assert 4000 == Settings().window


@pytest.mark.parametrize("password", ["p@ss-word", "p/ss-word", "12/ss-word", "p@x/ss-word", "p%ss-word", "p?x@y/ss-word"])
def test_a_password_that_is_not_percent_encoded_is_refused_without_repeating_it(password: str) -> None:
    """The driver would take a part of it for host, port or database, and repeat that in each error."""
    with pytest.raises(SettingsError, match="user, password and names must be percent-encoded: @ as %40") as caught:
        load({"RELAY_DATABASE_URL": f"postgresql://relay:{password}@127.0.0.1/db"}, env_file=None)

    assert str(caught.value).startswith("RELAY_DATABASE_URL is not usable (not shown)")
    assert "ss-word" not in str(caught.value)


@pytest.mark.parametrize("password", ["p/ss-word", "12/ss-word", "12#ss-word", "12?ss-word", "p%zzss-word", "ss-word%"])
def test_a_password_of_the_broker_is_told_the_same(password: str) -> None:
    """Its library would take the beginning for a port."""
    with pytest.raises(SettingsError, match=r"RELAY_AMQP_URL .*password and names must be percent-encoded") as caught:
        load({"RELAY_AMQP_URL": f"amqp://relay:{password}@127.0.0.1/shop"}, env_file=None)

    assert "ss-word" not in str(caught.value)


def test_a_parameter_of_a_url_that_there_is_not_is_named() -> None:
    """It is no part of a password unless an @ follows; then nothing is repeated."""
    with pytest.raises(SettingsError, match=r"RELAY_DATABASE_URL is not usable .* There is no parameter 'sslmod': correct") as caught:
        load({"RELAY_DATABASE_URL": "postgresql://relay:hidden@127.0.0.1/db?connect_timeout=9&sslmod=hidden"}, env_file=None)
    assert "percent-encoded" not in str(caught.value)
    assert "hidden" not in str(caught.value)

    with pytest.raises(SettingsError, match="must be percent-encoded") as caught:
        load({"RELAY_DATABASE_URL": "postgresql://relay:p/q?hidden=x@127.0.0.1/db"}, env_file=None)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://relay:p%40ss%2Fword@one:5432,two:5433/db?application_name=me@here",
        "postgres://relay:p?ss#word@[::1]/db",
        "postgresql:///db?host=@socket",
        "host=@socket password=x://y@z/@",
    ],
)
def test_an_at_sign_where_it_may_stand_is_no_mistake(url: str) -> None:
    """In a parameter, in a conninfo, and at the end of the login."""
    assert url == load({"RELAY_DATABASE_URL": url}, env_file=None).conninfo


@pytest.mark.parametrize("names", ["", " ", " , ", "orders,", ",orders", "orders,,audit"])
def test_an_allow_list_with_an_empty_name_is_refused(names: str) -> None:
    """A comma too many would open the default exchange, straight into any queue, and a variable that came out empty all of them."""
    with pytest.raises(SettingsError, match=r"RELAY_ALLOWED_EXCHANGES .* amq\.default for the default exchange"):
        load({"RELAY_ALLOWED_EXCHANGES": names}, env_file=None)


def test_the_default_exchange_has_a_name_in_an_allow_list() -> None:
    """The one that the broker's permissions know."""
    assert ("orders", "") == load({"RELAY_ALLOWED_EXCHANGES": "orders, amq.default"}, env_file=None).allowed_exchanges
