"""relay replay: by filter, page by page, at a rate."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from relay.cli.commands import replay as cli_replay
from relay.cli.common.output import count
from relay.postgres.operator_session import OperatorSession
from tests.support.relays.cli import Cli, Seeded


def _waiting(seeded: Seeded) -> list[str]:
    """Routing keys of what waits."""
    return [key for (key,) in seeded.run("SELECT routing_key FROM queue_message ORDER BY xid, seq")]


@pytest.mark.ids("B13")
@pytest.mark.parametrize(
    ("args", "keys"),
    [
        (["--exchange", "orders"], ["a.1", "a.2", "b.1"]),
        (["--exchange", "audit"], ["c.1"]),
        (["--routing-key", "a.*"], ["a.1", "a.2"]),
        (["--result", "failed"], ["a.2", "c.1"]),
        (["--code", "unroutable"], ["a.2"]),
        (["--from", "1h", "--limit", "2"], ["a.1", "a.2"]),
        (["--to", "1h", "--exchange", "orders"], []),
        (["--exchange", "a_1"], []),
        (["--routing-key", "%"], []),
    ],
    ids=" ".join,
)
def test_a_filter_selects_what_is_replayed(cli: Cli, seeded: Seeded, args: list[str], keys: list[str]) -> None:
    """In the order in which it was archived, successes too; --dry-run counts the same and changes nothing."""
    seeded.archive("success", routing_key="a.1")
    seeded.archive("failed", "unroutable", routing_key="a.2")
    seeded.archive("success", routing_key="b.1")
    seeded.archive("failed", "nacked", exchange="audit", routing_key="c.1")

    assert f"{count(len(keys), 'message')} would be replayed\n" == cli("replay", *args, "--dry-run")
    assert [] == _waiting(seeded)
    assert f"{count(len(keys), 'message')} replayed\n" == cli("replay", *args)
    assert keys == _waiting(seeded)


def test_what_was_replayed_is_left_out_unless_asked_for(cli: Cli, seeded: Seeded) -> None:
    """So a replay can simply be run again."""
    seeded.archive("success")

    printed = [cli("replay", "--exchange", "orders", *more) for more in ([], [], ["--again"])]

    assert ["1 message replayed\n", "0 messages replayed\n", "1 message replayed\n"] == printed


NONE = {"messages": 0, "refused": 0, "refusals": [], "dry_run": False, "interrupted": False}
SETTLE = "SELECT queue_message_archive_now(array_agg(id), 'success', NULL, NULL, 'relay-1') FROM queue_message"


@pytest.mark.parametrize("more", [[], ["--result", "success"], ["--same-id"], ["--job", "repair"]], ids=" ".join)
def test_a_replay_that_is_run_again_replays_no_replay(cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    """Interrupted, run again and once more, with what went out meanwhile in the archive; --again takes all of it."""
    for number in range(3):
        seeded.archive("success", routing_key=str(number))
    monkeypatch.setattr(cli_replay, "PAGE", 2)
    command = ("replay", "--from", "1h", "--exchange", "orders", *more)

    def interrupt(done: int | None) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cli_replay, "_progress", interrupt)
        assert "2 messages replayed\n" == cli(*command, code=130)
    seeded.run(SETTLE)
    assert "1 message replayed\n" == cli(*command)
    seeded.run(SETTLE)

    assert "0 messages replayed\n" == cli(*command)
    if "--job" not in more:
        assert "6 messages would be replayed\n" == cli(*command, "--again", "--dry-run")


def test_what_is_replayed_now_is_not_found_again_by_the_same_replay(cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay may settle a replayed message before the replay is through: the end of the time was fixed at the start."""
    seeded.archive("success")
    seeded.archive("success")
    pages = []
    run = OperatorSession.rows

    def settle_after_each(self: OperatorSession, name: str, /, **values: object) -> list[dict[str, object]]:
        rows = run(self, name, **values)
        if name == "replay_page":
            pages.append(len(rows))
            seeded.run(SETTLE)
        return rows

    monkeypatch.setattr(cli_replay, "PAGE", 1)
    monkeypatch.setattr(OperatorSession, "rows", settle_after_each)

    assert "2 messages replayed\n" == cli("replay", "--exchange", "orders")
    assert [1, 1, 0] == pages


def test_a_replay_goes_page_by_page_and_a_broken_one_goes_on(cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C keeps what went through and says so; the next run replays the rest."""
    for number in range(5):
        seeded.archive("success", routing_key=str(number))
    monkeypatch.setattr(cli_replay, "PAGE", 2)
    shown: list[int | None] = []

    def interrupt(done: int | None) -> None:
        shown.append(done)
        if done == 4:
            raise KeyboardInterrupt

    assert "5 messages would be replayed\n" == cli("replay", "--exchange", "orders", "--dry-run")
    with monkeypatch.context() as patch:
        patch.setattr(cli_replay, "_progress", interrupt)
        assert "4 messages replayed\n" == cli("replay", "--exchange", "orders", code=130)
    assert "run it again for the rest" in cli.stderr
    assert [2, 4, None] == shown

    assert "1 message replayed\n" == cli("replay", "--exchange", "orders")
    assert ["0", "1", "2", "3", "4"] == _waiting(seeded)


def test_progress_is_told_where_there_is_no_terminal(cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is printed every few seconds, in addition to the result."""
    for _ in range(3):
        seeded.archive("success")
    monkeypatch.setattr(cli_replay, "PAGE", 2)

    cli("replay", "--exchange", "orders", "--dry-run")
    assert "" == cli.stderr
    monkeypatch.setattr(cli_replay, "PROGRESS_SECONDS", 0)
    assert "3 messages would be replayed\n" == cli("replay", "--exchange", "orders", "--dry-run")
    assert "2 messages so far.\n3 messages so far.\n" == cli.stderr


def test_a_rate_is_held(cli: Cli, seeded: Seeded) -> None:
    """Ten messages at twenty a second take half a second, in small steps."""
    for _ in range(10):
        seeded.archive("success")

    began = time.monotonic()
    cli("replay", "--exchange", "orders", "--rate", "20")

    assert 0.45 < time.monotonic() - began < 5


def test_a_replay_without_a_filter_is_refused(cli: Cli) -> None:
    """No operator replays the whole archive by mistake."""
    assert cli.refused("replay", code=2).startswith("Say what to replay: at least one of --from")
    assert "Say what to replay" in cli.refused("replay", "--limit", "5", code=2)


def test_a_time_in_which_nothing_can_lie_is_refused(cli: Cli) -> None:
    """A length is counted from one look at the clock, so the same twice is no time at all."""
    for times in (["--from", "1h", "--to", "1h"], ["--from", "2031-01-02T00:00:00Z", "--to", "2031-01-01T00:00:00Z"]):
        assert cli.refused("replay", *times, code=2).startswith("Nothing matches: --from must be before --to.")
    assert "--from must be before now" in cli.refused("replay", "--from", "9000-01-01T00:00:00Z", code=2)


def test_why_nothing_is_replayed_is_told_apart(cli: Cli, seeded: Seeded) -> None:
    """A filter that is wrong, and one whose work is done; a script that runs it again gets 0 as before."""
    seeded.archive("success")

    assert NONE == cli.json("replay", "--exchange", "order")
    assert cli.stderr.startswith("Nothing matches: the archive has no such message")
    for job, said in (("--again", "1 message replayed\n"), ("", "0 messages replayed\n")):
        assert said == cli("replay", "--exchange", "orders", *filter(None, ["--job", "j", job]))
    assert "All that matches was replayed before, or is a replay.\n" == cli.stderr
    cli("replay", "--exchange", "orders")
    assert "All that matches was replayed before, or is a replay; --again takes it once more.\n" == cli.stderr


def test_a_time_before_the_first_year_is_refused(cli: Cli) -> None:
    """By name of the option, and not as a time that PostgreSQL or the driver cannot hold."""
    for option, length in (("--from", "99999999d"), ("--to", "999999d"), ("--from", "999999999d")):
        sentence = cli.refused("replay", "--exchange", "orders", option, length, code=2)
        assert sentence.startswith(f"{option} is outside the years 1 to 9999")
        assert "Invalid value" not in sentence


def test_a_rate_without_an_end_is_no_rate(cli: Cli, seeded: Seeded) -> None:
    """Infinity is a number like any other."""
    seeded.archive("success")

    assert "1 message replayed\n" == cli("replay", "--exchange", "orders", "--rate", "inf")


def test_times_are_those_of_archiving(cli: Cli, seeded: Seeded) -> None:
    """From is included, to is not; the answer is JSON if asked for."""
    seeded.archive("success")
    soon, later = ((datetime.now(UTC) + timedelta(hours=hours)).isoformat() for hours in (1, 2))

    assert {**NONE, "messages": 1, "dry_run": True} == cli.json("replay", "--from", "1h", "--to", soon, "--dry-run")
    assert 0 == cli.json("replay", "--from", soon, "--to", later, "--dry-run")["messages"]


def test_a_job_replays_each_message_once_however_often_it_is_run(cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what was replayed before, with --again, and where Ctrl-C came between; another job has a ledger of its own."""
    for number in range(3):
        seeded.archive("success", routing_key=str(number))
    assert "3 messages replayed\n" == cli("replay", "--exchange", "orders")
    again = ("replay", "--exchange", "orders", "--again", "--job")
    monkeypatch.setattr(cli_replay, "PAGE", 2)

    def interrupt(done: int | None) -> None:
        if done == 2:
            raise KeyboardInterrupt

    assert "3 messages would be replayed\n" == cli(*again, "repair", "--dry-run")
    with monkeypatch.context() as patch:
        patch.setattr(cli_replay, "_progress", interrupt)
        assert "2 messages replayed\n" == cli(*again, "repair", code=130)
    assert ["1 message replayed\n", "0 messages replayed\n"] == [cli(*again, "repair") for _ in range(2)]
    assert "3 messages replayed\n" == cli(*again, "other")
    assert [("other", 3), ("repair", 3)] == seeded.run("SELECT job, count(*) FROM queue_message_replay_ledger GROUP BY job ORDER BY job")
    assert [(6,)] == seeded.run("SELECT count(*) FROM queue_message_replay_ledger l JOIN queue_message m USING (id)")


@pytest.mark.parametrize("more", [[], ["--same-id"]])
def test_a_job_does_not_replay_what_it_made(cli: Cli, seeded: Seeded, more: list[str]) -> None:
    """Its messages may be in the archive when it is run again; a job of another name takes them for messages like others."""
    seeded.archive("success")
    again = ("replay", "--exchange", "orders", "--again", *more, "--job")

    assert "1 message replayed\n" == cli(*again, "repair")
    seeded.run(SETTLE)

    assert "0 messages replayed\n" == cli(*again, "repair")
    assert "2 messages would be replayed\n" == cli(*again, "other", "--dry-run")


def test_a_job_has_a_name(cli: Cli) -> None:
    """Which fits into the ledger."""
    for name in ("", "é" * 128):
        assert "--job must have 1 to 255 bytes" in cli.refused("replay", "--exchange", "e", "--job", name, code=2)


def _refused_today(seeded: Seeded, many: int = 1) -> list[str]:
    """Archive messages that the queue does not take any more; return their ids."""
    seeded.run("SET session_replication_role = replica")
    ids = [seeded.archive("failed", "x", routing_key="k" * 300) for _ in range(many)]
    seeded.run("RESET session_replication_role")
    return ids


@pytest.mark.ids("B13")
def test_what_the_queue_refuses_today_is_named_and_the_others_go(cli: Cli, seeded: Seeded) -> None:
    """A script hears of it by the exit code, each time until it goes; a dry run does not try."""
    seeded.archive("failed", "x", routing_key="0")
    [bad] = _refused_today(seeded)
    seeded.archive("failed", "x", routing_key="1")
    command = ("replay", "--result", "failed")
    why = "routing_key is 300 bytes long; the limit is 255 bytes"

    assert "3 messages would be replayed\n" == cli(*command, "--dry-run")
    assert "2 messages replayed, 1 refused\n" == cli(*command, code=1)
    assert f"Message {bad} was refused: {why}.\n" == cli.stderr
    assert ["0", "1"] == _waiting(seeded)
    assert {**NONE, "refused": 1, "refusals": [{"id": bad, "reason": why}]} == cli.json(*command, code=1)
    seeded.run("ALTER TABLE queue_message DISABLE TRIGGER queue_message_check")
    assert "1 message replayed\n" == cli(*command)


def test_what_is_refused_takes_no_place_of_a_limit(cli: Cli, seeded: Seeded) -> None:
    """Or no run would get past those that stand first; nor does a rate wait for it."""
    _refused_today(seeded, 10)
    for number in range(2):
        seeded.archive("failed", "x", routing_key=str(number))
    began = time.monotonic()

    assert "1 message replayed, 10 refused\n" == cli("replay", "--exchange", "orders", "--limit", "1", "--rate", "2", code=1)
    assert ["0"] == _waiting(seeded)
    assert time.monotonic() - began < 4


def test_of_many_refused_messages_some_are_named(cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are counted, also over several pages."""
    ids = _refused_today(seeded, 5)
    monkeypatch.setattr(cli_replay, "PAGE", 2)
    monkeypatch.setattr(cli_replay, "SHOWN", 3)

    told = cli.json("replay", "--exchange", "orders", code=1)

    assert (5, ids[:3]) == (told["refused"], [each["id"] for each in told["refusals"]])
    assert 3 == cli.stderr.count("was refused")


def test_an_interrupted_replay_says_so_beside_what_was_refused(cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the exit code of an interruption: there is more to do."""
    _refused_today(seeded)

    def interrupt(done: int | None) -> None:
        if done is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli_replay, "_progress", interrupt)

    assert "0 messages replayed, 1 refused\n" == cli("replay", "--exchange", "orders", code=130)
    assert "run it again for the rest" in cli.stderr


@pytest.mark.ids("B13", "D7")
def test_what_was_taken_out_is_replayed_only_where_it_is_named(cli: Cli, seeded: Seeded) -> None:
    """An hour again is what was sent in it; result, code or id say that another is meant."""
    older, _ = (cli("enqueue", "stock", "level", str(number), "--coalesce-key", "k").strip() for number in (1, 2))
    part, back = cli("enqueue", "stock", "line", "3", "--bundle-key", "b").strip(), cli("enqueue", "stock", "level", "4").strip()
    cli("cancel", back)
    seeded.run("SELECT queue_message_fold(now() + interval '1 min')")
    seeded.run("SELECT queue_message_archive_now(array_agg(id), 'success', NULL, NULL, 'a relay') FROM queue_message")

    cli("replay", "--exchange", "stock")
    assert [("2",), ("[3]",)] == seeded.run("SELECT content::text FROM queue_message ORDER BY seq")
    cli("replay", "--exchange", "stock", "--code", "bundled")
    cli("replay", "--result", "discarded")
    cli("dead", "replay", older, "--again")
    origins = seeded.run("SELECT replay_of::text FROM queue_message ORDER BY seq")
    assert [part, back, older, older] == [id_ for (id_,) in origins[2:]]
