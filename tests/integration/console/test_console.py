"""The console's pages say what the commands say, in the same words, and change nothing."""

from __future__ import annotations

import html
import re
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psycopg
import pytest

from tests.integration.console.conftest import Console
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

PAGES = ("/", "/waiting", "/dead")
HOSTILE = "<script>alert('x')</script>\u202e\"'&\x07"


def shown(answer: httpx.Response) -> str:
    """The text of a page as a reader sees it, on one line."""
    body = answer.text[answer.text.index("<main") :]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def plain(line: str) -> str:
    """A line without the marks of code, and without ages, which grow."""
    return re.sub(r" (since|the oldest for) [^,;]*", "", " ".join(line.replace("`", "").split()).replace(" ;", ";").replace(" :", ":"))


def links(answer: httpx.Response, path: str) -> list[str]:
    """The links of a page that begin so."""
    return [html.unescape(one) for one in re.findall(r'href="([^"]*)"', answer.text) if one.startswith(path)]


def test_the_overview_has_every_line_of_the_status(console: Console, cli: Cli, seeded: Seeded) -> None:
    """What waits, what was settled, and what needs an operator."""
    seeded.insert()
    seeded.insert(available_at="2031-01-01T00:00:00Z")
    seeded.archive("failed", "unroutable")
    seeded.run("SELECT queue_message_pause('audit', 'too loud', 'ann')")
    client = console()

    page = shown(client.get("/"))

    lines = [plain(line) for line in cli("status").splitlines() if line and "second" not in line]
    assert len(lines) >= 4
    assert [] == [line for line in lines if line not in plain(page)]
    assert "1 failed (unroutable)" in page


def test_a_queue_without_problems_needs_nobody(console: Console, seeded: Seeded) -> None:
    """Or else a list of problems is there."""
    state = '{"broker": "up", "listen": "up"}'
    seeded.run("INSERT INTO queue_message_relay (name, version, host, pid, state) VALUES ('relay-1', '1.0', 'host-1', 42, %s)", state)

    page = shown(console().get("/"))

    assert "Nothing needs an operator." in page
    assert "relay-1 (" in page


def test_waiting_messages_are_filtered_and_paged(console: Console, cli: Cli, seeded: Seeded) -> None:
    """As by `relay list`; a link leads to the next page with the same filter."""
    seeded.run("INSERT INTO queue_message (exchange, routing_key) SELECT 'orders', 'k' || n FROM generate_series(1, 60) n")
    seeded.insert(exchange="audit", available_at="2031-01-01T00:00:00Z")
    client = console()

    first = client.get("/waiting", params={"exchange": "orders", "state": "ready"})
    [more] = links(first, "/waiting?")
    second = client.get(more)

    ids = [one.removeprefix("/message/") for page in (first, second) for one in links(page, "/message/")]
    assert [row["id"] for row in cli.json("list", "--exchange", "orders")["messages"]] == ids
    assert (50, 10) == (len(links(first, "/message/")), len(links(second, "/message/")))
    assert "its time, 2031-01-01 00:00:00Z" in shown(client.get("/waiting?state=scheduled"))
    assert "No such message waits." in shown(client.get("/waiting?routing_key=none"))
    assert "There is no state 'odd'" in shown(client.get("/waiting?state=odd"))
    assert 400 == client.get("/waiting?after=odd").status_code


def test_a_message_s_page_tells_its_story(console: Console, cli: Cli, seeded: Seeded) -> None:
    """As `relay show` does: each time that it was archived, its steps, its replays."""
    dead = seeded.archive("failed", "unroutable", "no queue is bound", routing_key="paid")
    new = cli("dead", "replay", dead).strip()
    client = console()

    page = client.get("/message", params={"id": f" {dead} "})

    assert f"/message/{dead}" == page.url.path
    assert re.search(r"failed \(unroutable\).* paid .*no queue is bound.* created .* archived .*Replays", shown(page))
    assert [f"/message/{new}"] == links(page, "/message/")
    assert "Waits for: no relay is alive" in shown(client.get(f"/message/{new}"))


def test_a_message_that_does_not_exist_is_a_sentence(console: Console) -> None:
    """So is an id that is none."""
    client = console()

    missing, wrong = client.get("/message/00000000-0000-0000-0000-000000000000"), client.get("/message?id=odd")

    assert (404, 400) == (missing.status_code, wrong.status_code)
    assert "neither in the queue nor in the archive" in shown(missing)
    assert "ID must be" in shown(wrong)


def test_dead_messages_are_grouped_and_a_group_opens(console: Console, cli: Cli, seeded: Seeded) -> None:
    """By exchange, routing key, result and code; an empty name is a name."""
    first = {seeded.archive("failed", "unroutable", exchange="", routing_key="") for _ in range(3)}
    seeded.archive("failed", "unroutable", routing_key="paid")
    answered = seeded.archive("rejected", "too_large")
    cli("dead", "ack", answered, "--note", "known")
    client = console()

    page = client.get("/dead")
    [group, other] = links(page, "/dead?")
    opened = client.get(group)

    assert {f"/message/{id_}" for id_ in first} == set(links(opened, "/message/"))
    assert 1 == len(links(client.get(other), "/message/"))
    assert f"/message/{answered}" not in links(page, "/message/")
    assert "acknowledged by postgres: known" in shown(client.get("/dead?all=1"))


def test_foreign_text_is_shown_and_never_run(console: Console, seeded: Seeded) -> None:
    """On every page; characters that turn the direction of writing are made visible."""
    waiting = seeded.insert(exchange=HOSTILE, routing_key=HOSTILE, ordering_key=HOSTILE)
    seeded.run("UPDATE queue_message SET last_error = %s, attempts = 1, available_at = now() + interval '1 h'", HOSTILE)
    dead = seeded.archive("failed", "x", HOSTILE, routing_key=HOSTILE)
    seeded.run("SELECT queue_message_pause(%s, %s, %s)", HOSTILE, HOSTILE, HOSTILE)
    client = console()

    for path in (*PAGES, f"/message/{waiting}", f"/message/{dead}", '/dead?code=<b>&exchange="><b>'):
        answer = client.get(path)
        assert 200 == answer.status_code, path
        assert "<script>alert" not in answer.text, path
        assert "<b>" not in answer.text, path
        assert not {"\u202e", "\x07"} & set(answer.text), path
    assert "alert(" in shown(client.get("/waiting"))


@pytest.mark.parametrize("path", PAGES)
def test_a_lost_connection_is_a_sentence_and_the_next_page_is_whole(console: Console, seeded: Seeded, path: str) -> None:
    """The page tries again by itself."""
    client = console()
    assert 200 == client.get(path).status_code
    seeded.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'outbox-relay console'")

    lost = [client.get(path) for _ in range(2)] if path != "/" else [client.get("/waiting"), client.get(path)]

    assert [503, 200] == [one.status_code for one in lost]
    assert "PostgreSQL went away: check that it runs" in shown(lost[0])
    assert "data-refresh" in lost[0].text


def test_a_lock_delays_a_page_by_no_more_than_a_second(console: Console, database_url: str) -> None:
    """As long as a migration or VACUUM FULL holds the queue, the page says what is in the way."""
    client = console()
    with psycopg.connect(database_url) as other:
        other.execute("LOCK TABLE queue_message")
        answer = client.get("/waiting")

    assert 503 == answer.status_code
    assert "Another session holds a lock that this needs" in shown(answer)
    assert answer.elapsed.total_seconds() < 3


def test_many_pages_share_the_wait_for_a_lock(console: Console, database_url: str) -> None:
    """Twenty overviews are answered as soon as one."""
    client = console()
    with psycopg.connect(database_url) as other, ThreadPoolExecutor(20) as browsers:
        other.execute("LOCK TABLE queue_message")
        begin = time.monotonic()
        answers = list(browsers.map(client.get, ["/"] * 20))
        took = time.monotonic() - begin

    assert {503} == {answer.status_code for answer in answers}
    assert took < 5


def test_an_operator_s_login_is_enough_and_nothing_is_written(console: Console, cli: Cli, seeded: Seeded) -> None:
    """Not even where every transaction is read-only."""
    dead = seeded.archive("failed", "unroutable")
    with login(cli.env["RELAY_DATABASE_URL"], "queue_message_operator") as url:
        seeded.run(f'ALTER ROLE "{psycopg.conninfo.conninfo_to_dict(url)["user"]}" SET default_transaction_read_only = on')
        client = console(RELAY_DATABASE_URL=url)
        assert [200] * 4 == [client.get(path).status_code for path in (*PAGES, f"/message/{dead}")]


def test_a_login_without_rights_gets_a_sentence(console: Console, cli: Cli) -> None:
    """On every page the same as from the command."""
    with login(cli.env["RELAY_DATABASE_URL"], "queue_message_producer") as url:
        client = console(RELAY_DATABASE_URL=url)
        for path in PAGES:
            answer = client.get(path)
            assert 500 == answer.status_code
            assert "let the schema's owner run relay grant operator LOGIN" in shown(answer)
