"""relay dead watch --webhook: what is posted, what counts as handled, what is tried again, and what is refused at the start."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.cli.dead_watch.actions import LONGEST_PAUSE, pause
from relay.cli.dead_watch.webhook import retry_after
from relay.net.http_client import Response
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.certificates import Authority
from tests.support.servers.webhook_receiver import Answer, Got, Hook, hook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ONCE = ("dead", "watch", "--once", "--ack", "--allow-private", "--webhook")
UNANSWERED = "SELECT count(*) FROM queue_message_dead_list WHERE acknowledged_at IS NULL"


@pytest.fixture
def receiver() -> Iterator[Hook]:
    """Who gets webhooks."""
    with hook() as running:
        yield running


def _is_signed(got: Got, secret: str) -> bool:
    """Checked as a receiver would, by the text of the convention."""
    content = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    digest = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), content, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}" in got.headers["webhook-signature"].split()


@pytest.mark.ids("A16", "A40")
def test_a_webhook_is_signed_and_its_success_acknowledges(cli: Cli, seeded: Seeded, receiver: Hook) -> None:
    """Metadata without content; the answer names the watch and the login."""
    dead = seeded.archive("failed", "unroutable", "no queue took it", content='{"card": "4111"}', routing_key="new")
    cli(*ONCE, receiver.url, RELAY_WEBHOOK_SECRET=SECRET)

    got = receiver.next()
    assert _is_signed(got, SECRET)
    body = json.loads(got.body)
    assert ("POST", "application/json", "message.dead") == (got.method, got.headers["content-type"], body["type"])
    assert (dead, "orders", "new", "failed", "unroutable") == tuple(
        body["data"][name] for name in ("id", "exchange", "routing_key", "result", "error_code")
    )
    assert b"4111" not in got.body
    [(by, note)] = seeded.run("SELECT acknowledged_by, note FROM queue_message_dead_ack")
    assert by.endswith("(as relay dead watch)")
    assert "handled by webhook" == note


def test_without_ack_it_stays_and_is_posted_again_by_the_next_watch(cli: Cli, seeded: Seeded, receiver: Hook) -> None:
    """With the same webhook-id, so that a receiver can tell."""
    seeded.archive("failed")
    for _ in range(2):
        cli("dead", "watch", "--once", "--content", "--allow-private", "--webhook", receiver.url, "--unsigned")

    first, second = receiver.next(), receiver.next()
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert "webhook-signature" not in first.headers
    assert "{}" == json.loads(first.body)["data"]["content"]
    assert [(1,)] == seeded.run(UNANSWERED)


@pytest.mark.parametrize("status", [400, 404, 410, 301, 307])
def test_what_the_receiver_will_never_take_is_not_tried_again(cli: Cli, seeded: Seeded, receiver: Hook, status: int) -> None:
    """A redirect among it; it stays unacknowledged, and the exit code says so."""
    dead = seeded.archive("failed")
    receiver.answer = lambda _: Answer(status, {"Location": receiver.url})

    cli(*ONCE, receiver.url, code=1, RELAY_WEBHOOK_SECRET=SECRET)

    receiver.next()
    assert receiver.got.empty()
    assert f"answered {status} for message {dead}" in cli.stderr
    assert "it is not tried again and stays unacknowledged." in cli.stderr
    assert "not-for-logs" not in cli.stderr
    assert SECRET not in cli.stderr
    assert [(1,)] == seeded.run(UNANSWERED)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_what_fails_in_passing_is_tried_again(cli: Cli, seeded: Seeded, receiver: Hook, status: int) -> None:
    """Until the receiver takes it; then it is acknowledged."""
    seeded.archive("failed")
    answers = [Answer(status), Answer(200, {"content-length": "0"}, lambda: iter(()))]
    receiver.answer = lambda _: answers.pop(0)
    process = cli.start("dead", "watch", "--poll", "60", "--ack", "--allow-private", "--webhook", receiver.url, "--unsigned")

    first, second = receiver.next(), receiver.next()
    process.send_signal(signal.SIGTERM)
    _, complaints = process.communicate(timeout=20)

    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert (0, [(0,)]) == (process.returncode, seeded.run(UNANSWERED))
    assert "Dead messages: 1 handled." in complaints


def test_a_message_that_spoils_each_try_is_given_up_and_its_neighbour_goes(cli: Cli, seeded: Seeded, receiver: Hook) -> None:
    """It is named and stays unacknowledged."""
    bad, good = seeded.archive("failed", routing_key="bad"), seeded.archive("failed", routing_key="good")
    receiver.answer = lambda got: Answer(500 if b'"bad"' in got.body else 204)
    process = cli.start(
        "dead", "watch", "--poll", "60", "--ack", "--tries", "2", "--allow-private", "--webhook", receiver.url, "--unsigned"
    )
    assert [bad, good, bad] == [json.loads(receiver.next().body)["data"]["id"] for _ in range(3)]

    process.send_signal(signal.SIGTERM)
    _, complaints = process.communicate(timeout=20)

    assert f"Message {bad} is given up after 2 tries; it stays unacknowledged.\n" in complaints
    assert "Dead messages: 1 handled, 1 given up." in complaints
    assert [(bad,)] == seeded.run("SELECT id::text FROM queue_message_dead_list WHERE acknowledged_at IS NULL")


def test_a_receiver_that_is_down_costs_no_tries(cli: Cli, seeded: Seeded) -> None:
    """It comes back, and all is posted, although each message has one try."""
    with hook() as gone:
        port, url = gone.port, gone.url
    dead = {seeded.archive("failed") for _ in range(3)}
    process = cli.start("dead", "watch", "--poll", "60", "--ack", "--tries", "1", "--allow-private", "--webhook", url, "--unsigned")
    assert process.stderr is not None
    assert "plain text" in process.stderr.readline()
    assert "cannot be reached (Connection refused)" in process.stderr.readline()

    with hook(port) as back:
        assert dead == {json.loads(back.next().body)["data"]["id"] for _ in range(3)}
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=20)

    assert "Dead messages: 3 handled." in complaints
    assert [(0,)] == seeded.run(UNANSWERED)


def test_a_receiver_that_never_answers_is_left_in_time(cli: Cli, seeded: Seeded, receiver: Hook) -> None:
    """It may have got the message, so that counts as a try."""
    dead = seeded.archive("failed")

    def hang(_: Got) -> Answer:
        receiver.released.wait()
        return Answer()

    receiver.answer = hang
    cli(*ONCE, receiver.url, "--unsigned", "--timeout", "0.5", "--tries", "1", code=1)

    assert f"gave no whole answer within 0.5 s. Message {dead} stays unacknowledged." in cli.stderr


def test_a_second_signal_cuts_a_webhook(cli: Cli, seeded: Seeded, receiver: Hook) -> None:
    """The first lets it finish; what was cut is not acknowledged."""
    seeded.archive("failed")

    def hang(_: Got) -> Answer:
        receiver.released.wait()
        return Answer()

    receiver.answer = hang
    process = cli.start("dead", "watch", "--ack", "--allow-private", "--webhook", receiver.url, "--unsigned", "--timeout", "600")
    receiver.next()
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGINT)
    _, complaints = process.communicate(timeout=20)

    assert (0, [(1,)]) == (process.returncode, seeded.run(UNANSWERED))
    assert "was cut short" in complaints


def test_several_handlers_are_all_needed(cli: Cli, seeded: Seeded, receiver: Hook, tmp_path: Path) -> None:
    """One that has handled a message does not get it again while another is tried; only then it is acknowledged."""
    seeded.archive("failed")
    answers = [Answer(500), Answer()]
    receiver.answer = lambda _: answers.pop(0)
    ran = tmp_path / "ran"
    script = tmp_path / "run.sh"
    script.write_text(f"cat >> {ran}\n")
    process = cli.start(
        "dead", "watch", "--poll", "60", "--ack", "--log", "--json", "--command", f"/bin/sh {script}",
        "--allow-private", "--webhook", receiver.url, "--unsigned",
    )  # fmt: skip
    receiver.next()
    assert [(1,)] == seeded.run(UNANSWERED)
    receiver.next()
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=20)

    assert (1, 1) == (len(printed.splitlines()), len(ran.read_text().splitlines()))
    assert [("handled by log, command, webhook",)] == seeded.run("SELECT note FROM queue_message_dead_ack")


def test_tls_is_verified(cli: Cli, seeded: Seeded, tmp_path: Path) -> None:
    """By the system's authorities, or those that SSL_CERT_FILE names."""
    seeded.archive("failed")
    authority = Authority(tmp_path)
    with hook(tls=authority.issue("127.0.0.1")) as receiver:
        cli(*ONCE, receiver.url, code=1, RELAY_WEBHOOK_SECRET=SECRET)
        assert "its certificate is not trusted" in cli.stderr
        assert receiver.got.empty()
        cli(*ONCE, receiver.url, RELAY_WEBHOOK_SECRET=SECRET, SSL_CERT_FILE=str(authority.file))
        assert "" == cli.stderr.replace("Dead messages: 1 handled.\n", "")
    assert [(0,)] == seeded.run(UNANSWERED)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--webhook", "https://127.0.0.1/"], "the private address 127.0.0.1"),
        (["--webhook", "https://localhost/"], "Give --allow-private if it is meant"),
        (["--webhook", "https://169.254.169.254/", "--allow-private"], "credentials"),
        (["--webhook", "ftp://example.org/"], "must begin with https://"),
        (["--webhook", "https://ann:pw@example.org/"], "must hold no user"),
        (["--webhook", "https://\x1b]0;x\x07/"], "printable ASCII"),
        (["--webhook", "http://127.0.0.1:9/", "--allow-private"], "RELAY_WEBHOOK_SECRET is not set"),
        (["--unsigned"], "are for a --webhook"),
        (["--ack"], "--ack needs"),
        (["--env", "HOME"], "--env is for a --command"),
        (["--command", "true", "--env", "NO_SUCH_VARIABLE"], "not set here"),
    ],
)
def test_what_cannot_be_carried_out_is_said_before_anything_is_handled(cli: Cli, seeded: Seeded, options: list[str], sentence: str) -> None:
    """Exit code 2, one sentence fit for a terminal."""
    seeded.archive("failed")

    cli("dead", "watch", "--once", *options, code=2)

    assert sentence in cli.stderr
    assert "pw" not in cli.stderr
    assert cli.stderr.replace("\n", "").isprintable()


def test_a_secret_that_is_none_is_a_wrong_setting_and_not_shown(cli: Cli) -> None:
    """Before anything else."""
    sentence = cli.refused("dead", "watch", "--once", code=2, RELAY_WEBHOOK_SECRET="hunter2")

    assert "RELAY_WEBHOOK_SECRET is not usable (not shown)" in sentence
    assert "hunter2" not in sentence


def test_a_secret_comes_from_a_file_that_is_read_again(cli: Cli, seeded: Seeded, receiver: Hook, tmp_path: Path) -> None:
    """So it is changed without a restart."""
    file = tmp_path / "secret"
    file.write_text(SECRET)
    cli.env["RELAY_WEBHOOK_SECRET_FILE"] = str(file)
    process = cli.start("dead", "watch", "--poll", "60", "--allow-private", "--webhook", receiver.url)
    seeded.archive("failed")
    assert _is_signed(receiver.next(), SECRET)

    file.write_text(other := "whsec_" + "QUFB" * 8)
    seeded.archive("failed")
    assert _is_signed(receiver.next(), other)
    process.send_signal(signal.SIGTERM)
    assert "signed by the new secret" in process.communicate(timeout=20)[1]


def test_a_receiver_may_ask_for_patience_within_bounds() -> None:
    """Seconds up to five minutes; a date, a sign or nonsense is none."""
    asked = {"7": 7.0, "86400": LONGEST_PAUSE, "-5": 0.0, "Wed, 21 Oct 2065 07:28:00 GMT": 0.0, "9" * 5000: 0.0, "\u0667": 0.0, "": 0.0}

    assert asked == {text: retry_after(Response(503, {"retry-after": text}, b"")) for text in asked}
    assert all(0.75 <= pause(0) <= 1.0 and 225 <= pause(10_000) <= 300 for _ in range(100))


@pytest.mark.ids("A16")
@pytest.mark.parametrize("way", ["option", "file", "variable", "file of the variable"])
def test_the_url_may_come_from_where_nobody_else_reads_it(cli: Cli, seeded: Seeded, receiver: Hook, tmp_path: Path, way: str) -> None:
    """A command line is read by every user of the machine; a URL may be a password. It is shown nowhere."""
    seeded.archive("failed", "unroutable")
    url = f"{receiver.url}hunter2"
    file = tmp_path / "url"
    file.write_text(f"{url}\n")
    ways: dict[str, tuple[list[str], dict[str, Any]]] = {
        "option": (["--webhook", url], {}),
        "file": (["--webhook-file", str(file)], {}),
        "variable": ([], {"RELAY_WEBHOOK_URL": url}),
        "file of the variable": ([], {"RELAY_WEBHOOK_URL_FILE": str(file)}),
    }
    options, variables = ways[way]

    out = cli("dead", "watch", "--once", "--ack", "--allow-private", "--unsigned", *options, **variables)

    assert "message.dead" == json.loads(receiver.next().body)["type"]
    assert [(0,)] == seeded.run(UNANSWERED)
    assert "hunter2" not in out + cli.stderr


def test_an_option_is_asked_before_the_variable(cli: Cli, seeded: Seeded, receiver: Hook, tmp_path: Path) -> None:
    """Who writes it means it."""
    seeded.archive("failed", "unroutable")
    file = tmp_path / "url"
    file.write_text(receiver.url)
    cli("dead", "watch", "--once", "--allow-private", "--unsigned", "--webhook-file", str(file), RELAY_WEBHOOK_URL="http://127.0.0.1:9/")
    receiver.next()


def test_a_url_that_cannot_be_had_is_a_sentence_that_does_not_show_it(cli: Cli, tmp_path: Path) -> None:
    """And says where it came from."""
    watch = ("dead", "watch", "--once", "--unsigned")
    missing, wrong = tmp_path / "missing", tmp_path / "wrong"
    wrong.write_text("ftp://example.org/hunter2")

    assert f"--webhook-file {missing} cannot be read (No such file or directory)" in cli.refused(
        *watch, "--webhook-file", str(missing), code=2
    )
    assert "--webhook and --webhook-file are both given" in cli.refused(
        *watch, "--webhook", "https://example.org", "--webhook-file", str(wrong), code=2
    )
    for sentence, origin in (
        (cli.refused(*watch, "--webhook-file", str(wrong), code=2), "--webhook-file: "),
        (cli.refused(*watch, code=2, RELAY_WEBHOOK_URL=wrong.read_text()), "RELAY_WEBHOOK_URL: "),
    ):
        assert origin in sentence
        assert "hunter2" not in sentence
