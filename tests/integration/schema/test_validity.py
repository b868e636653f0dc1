"""What the database refuses at the INSERT, against the catalogue and against the encoder's own rules."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from psycopg import sql

from relay.codec.encoder import Encoder
from relay.codec.option_rules import OptionsError
from relay.codec.options import plan
from relay.message import PublishResult
from tests.support.fakes.json_values import nearly_right, options_text
from tests.support.poison.catalogue import POISON, Poison

BAD = {
    "exchange": "repeat('x', 256)", "routing_key": "repeat('x', 256)", "ordering_key": "repeat('x', 1025)",
    "options": "'{\"persistant\": true}'", "body": "'x', content = '[]'", "available_at": "'infinity'", "expires_at": "'-infinity'",
    "created_at": "'10000-01-01 00:00:00+00'", "lock_expires_at": "'infinity'", "attempts": "-1", "content": "'1e131071'",
}  # fmt: skip
"""A value that is refused, as an UPDATE names it."""
TABLE = sql.Identifier("public", "queue_message")
REFUSED = [entry for entry in POISON if entry.outcome == "refused"]
TAKEN = [entry for entry in POISON if entry.outcome != "refused"]
JUDGED_ALIKE = [entry for entry in POISON if "options" in entry.columns and entry.encodable and isinstance(entry.sentence, str)]


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the superuser's to a fresh database."""
    with psycopg.connect(database_url, autocommit=True) as made:
        yield made


@pytest.fixture(scope="module")
def shared_connection(databases: Any) -> Iterator[psycopg.Connection[Any]]:
    """One connection for many tests; each leaves nothing behind."""
    name = databases.create_migrated()
    with psycopg.connect(databases.url(name), autocommit=True) as made:
        yield made
    databases.drop(name)


@pytest.mark.parametrize("entry", REFUSED, ids=str)
def test_the_insert_refuses_with_a_sentence(shared_connection: psycopg.Connection[Any], entry: Poison) -> None:
    """What can never be sent is refused inside the app's transaction, in one line that names the column and the limit."""
    with pytest.raises(psycopg.Error) as caught, shared_connection.transaction(force_rollback=True):
        shared_connection.execute(entry.insert(TABLE, exchange="orders"))

    sentence = caught.value.diag.message_primary or ""
    assert any(fragment in sentence for fragment in entry.sentences), sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("entry", TAKEN, ids=str)
def test_the_insert_takes_what_may_be_sent(shared_connection: psycopg.Connection[Any], entry: Poison) -> None:
    """Whatever the broker takes, or has to judge, gets into the queue, and a claim can lock it and let it go again."""
    with shared_connection.transaction(force_rollback=True):
        shared_connection.execute(entry.insert(TABLE, exchange="orders"))
        shared_connection.execute(
            "UPDATE queue_message SET lock_expires_at = now(), lock_token = gen_random_uuid(), locked_by = 1, attempts = 1"
        )
        [(count,)] = shared_connection.execute("SELECT count(*) FROM queue_message")

    assert 1 == count


@pytest.mark.parametrize("entry", [entry for entry in TAKEN if "body" in entry.expect], ids=str)
def test_the_stored_text_is_what_the_consumer_is_owed(shared_connection: psycopg.Connection[Any], entry: Poison) -> None:
    """`content::text` of what is stored is byte for byte the body that the catalogue promises."""
    with shared_connection.transaction(force_rollback=True):
        shared_connection.execute(entry.insert(TABLE, exchange="orders"))
        [(text,)] = shared_connection.execute("SELECT content::text FROM queue_message")

    assert entry.body() == text.encode()


@pytest.mark.parametrize("column", BAD)
def test_an_error_names_table_column_and_constraint(connection: psycopg.Connection[Any], column: str) -> None:
    """A program can tell what was refused without reading the sentence, at the INSERT and at an UPDATE."""
    value, _, content = BAD[column].partition(", content = ")
    connection.execute("INSERT INTO queue_message (exchange) VALUES ('orders')")
    columns = {"exchange": "'orders'", "content": content or "'{}'", column: value}
    for statement in (
        f"INSERT INTO queue_message ({', '.join(columns)}) VALUES ({', '.join(columns.values())})",
        f"UPDATE queue_message SET {column} = {BAD[column]}",
    ):
        with pytest.raises(psycopg.errors.CheckViolation) as caught:
            connection.execute(statement.encode())

        diag = caught.value.diag
        assert ("queue_message", column, f"queue_message_{column}_check") == (diag.table_name, diag.column_name, diag.constraint_name)
        assert "docs/options.md" in (diag.message_hint or "")


@pytest.mark.parametrize(
    "text", ["repeat('1', 65536)", "repeat(repeat('0', 4000) || md5('x'), 300)", "'[' || repeat('1e308, ', 1000) || '1]'"]
)
def test_a_content_may_be_long_where_it_is_long(connection: psycopg.Connection[Any], text: str) -> None:
    """Also where it is stored compressed, is changed, or comes from a table: 32 times as long as a jsonb holds it, or 64 KiB."""
    value = f"to_jsonb({text})" if "repeat(repeat" in text else f"({text})::jsonb"
    connection.execute(f"INSERT INTO queue_message (exchange, content) VALUES ('orders', {value})".encode())
    connection.execute("INSERT INTO queue_message (exchange, content) SELECT exchange, content FROM queue_message")
    connection.execute("UPDATE queue_message SET content = content")

    assert (2,) == connection.execute("SELECT count(*) FROM queue_message").fetchone()


@pytest.mark.parametrize("numbers", ["1e131071", "1e65536", ", ".join(["1e2000"] * 100), ", ".join(["1e131071"] * 1000)])
def test_a_content_that_is_far_longer_as_text_than_it_takes_is_refused(connection: psycopg.Connection[Any], numbers: str) -> None:
    """A claim would have to print it, and some hundreds of those would block all others."""
    with pytest.raises(psycopg.errors.CheckViolation, match=r"^content (takes \d+ bytes and \d+ as text, .* as strings|is \d+ bytes long)"):
        connection.execute("INSERT INTO queue_message (exchange, content) VALUES ('orders', %s)", (f"[{numbers}]",))


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True])
def test_a_content_of_more_than_a_gigabyte_as_text_is_refused_by_its_limit(connection: psycopg.Connection[Any], stored: bool) -> None:
    """PostgreSQL cannot print it, and says so as a server without memory would; also where a table holds it compressed to little."""
    numbers = "('[' || repeat('1e131071,', 9000) || '1]')::jsonb"
    if stored:
        connection.execute(f"CREATE TABLE numbers AS SELECT {numbers} AS content".encode())
        assert (True,) == connection.execute("SELECT pg_column_size(content) < 65536 FROM numbers").fetchone()
        numbers = "(SELECT content FROM numbers)"

    with pytest.raises(
        psycopg.errors.CheckViolation, match=r"^content is longer than a gigabyte as text; the limit is 134217728 bytes"
    ) as caught:
        connection.execute(f"INSERT INTO queue_message (exchange, content) VALUES ('orders', {numbers})".encode())

    assert "content" == caught.value.diag.column_name


def test_a_message_expires_after_it_is_available(connection: psycopg.Connection[Any]) -> None:
    """Else it could never be sent, and everything behind its key would wait for its end; a retry may come after it."""
    insert = "INSERT INTO queue_message (exchange, available_at, expires_at) VALUES ('orders', now() + %s::interval, now() + '1 hour')"
    for too_late in ("1 hour", "700 years"):
        with pytest.raises(psycopg.errors.CheckViolation, match="expires_at is not after available_at"):
            connection.execute(insert.encode(), (too_late,))
    connection.execute(insert.encode(), ("59 minutes",))
    connection.execute("UPDATE queue_message SET available_at = expires_at + '1 hour'")


def test_what_an_insert_calls(connection: psycopg.Connection[Any]) -> None:
    """A good message calls three small functions, which keep their plans, and a claim none: this is what both cost the application."""
    insert = "INSERT INTO queue_message (exchange, routing_key, content) VALUES ('orders', 'k', '{\"n\": 1}')"
    claim = "UPDATE queue_message SET lock_expires_at = now(), lock_token = gen_random_uuid(), locked_by = 1, attempts = attempts + 1"
    # The key of the gate is computed as a session plans.
    connection.execute(insert.encode())

    assert {"queue_message_uuid": 2, "queue_message_check": 2, "queue_message_hint": 2} == _calls(connection, insert, insert)
    assert not _calls(connection, claim)


def test_an_insert_plans_no_expression(connection: psycopg.Connection[Any]) -> None:
    """Each statement plans the expressions of a CHECK or a WHEN again. An INSERT has neither."""
    checks = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'queue_message'::regclass AND contype = 'c'"
    conditions = "SELECT count(*), count(tgqual) FROM pg_trigger WHERE tgrelid = 'queue_message'::regclass AND tgtype & 4 <> 0"
    assert [] == connection.execute(checks).fetchall()
    assert [(2, 0)] == connection.execute(conditions).fetchall()


def test_options_are_judged_again_when_they_change(connection: psycopg.Connection[Any]) -> None:
    """An UPDATE of the options is refused as the INSERT would be."""
    connection.execute("INSERT INTO queue_message (exchange) VALUES ('orders')")

    with pytest.raises(psycopg.errors.CheckViolation, match=r"options\.priority must be a whole number"):
        connection.execute("UPDATE queue_message SET options = '{\"priority\": 256}'")


def test_a_claim_does_not_judge_options_again(connection: psycopg.Connection[Any]) -> None:
    """The trigger names its column, so locking a message never pays for its options."""
    [(columns,)] = connection.execute("""SELECT array_agg(attname) FROM pg_trigger, unnest(tgattr) AS number
        JOIN pg_attribute ON attrelid = 'queue_message'::regclass AND attnum = number WHERE tgname = 'queue_message_check_options'""")

    assert ["options"] == columns


@pytest.mark.parametrize("entry", JUDGED_ALIKE, ids=str)
def test_database_and_encoder_say_the_same_sentence(shared_connection: psycopg.Connection[Any], entry: Poison) -> None:
    """Both carry the same rules: for every entry of the catalogue they agree, to the word."""
    assert _sentence_of_encoder(entry.text("options")) == _sentence_of_database(shared_connection, entry.text("options"))


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=options_text() | nearly_right())
@example(text='{"CC": [true], "cc": [1]}')
@example(text='{"deliveryMode": true, "delivery_mode": 1}')
@example(text='{"deliveryMode": 2, "delivery_mode": 2.0}')
@example(text='{"expiration": 5.0, "timestamp": 1e3, "priority": 7.00}')
@example(text='{"headers": {"n": 0.00000001, "m": -0.0, "o": 9223372036854775808.5}}')
@example(text='{"expiration": "12\\n"}')
@example(text='{"reply_To": "x"}')
@example(text='{"pr' + "\u0131" + 'ority": 1}')
@example(text='{"priority": [3]}')
@example(text='{"type": ["x"]}')
@example(text='{"headers": [{}]}')
@example(text='{"headers": {"a": [1e400]}}')
@example(text='{"headers": {"a": {"": 1}}}')
@example(text=json.dumps({"headers": {"a": "x" * 130_000}}))
@example(text=json.dumps({"headers": dict.fromkeys("abc", int("1" + "0" * 2000))}))
@example(text='{"type": "x", "app_id": "a", "appId": "b"}')
@example(text='{"priority": 2.5}')
@example(text='{"expiration": -1}')
@example(text='{"deliveryMode": 3}')
def test_database_and_encoder_agree_on_any_options(shared_connection: psycopg.Connection[Any], text: str) -> None:
    """The database refuses exactly what the encoder would stop, for whatever options an app comes up with, also by the short look."""
    stored = _stored(shared_connection, text)

    assert (_sentence_of_encoder(stored) is None) == (_sentence_of_database(shared_connection, text) is None), stored


@pytest.mark.parametrize(
    "text",
    [
        '{"headers": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tenant": 7, "test": true, "more": null}}',
        '{"type": "order.placed", "app_id": "shop", "content_type": "application/json", "correlation_id": "c-1", "message_id": "m-1"}',
        '{"priority": 3, "persistent": true, "mandatory": false, "delivery_mode": 2, "timestamp": 1800000000, "expiration": "60000"}',
        '{"replyTo": "answers", "contentEncoding": "gzip", "userId": "guest", "appId": "shop", "deliveryMode": 1, "expiration": 60000}',
    ],
)
def test_common_options_get_a_short_look_alone(shared_connection: psycopg.Connection[Any], text: str) -> None:
    """What applications give is let through by it; the rules one by one cost an INSERT ten times as much."""
    [found] = shared_connection.execute("SELECT queue_message_options_common(%s), queue_message_options_error(%s)", (text, text))
    called = _calls(shared_connection, f"SELECT queue_message_options_error('{text}')")

    assert (True, None) == found
    assert {"queue_message_options_error": 1} == called, "the short look is not inlined"


def test_headers_that_cannot_be_printed_are_judged_by_their_numbers(shared_connection: psycopg.Connection[Any]) -> None:
    """They take 160 kB and are more than a gigabyte as text, which is never requested."""
    with pytest.raises(psycopg.errors.CheckViolation, match="holds a number that fits neither"):
        shared_connection.execute("""INSERT INTO queue_message (exchange, options) SELECT 'orders', jsonb_build_object('headers',
            (SELECT jsonb_object_agg('h' || n, round('1e131071'::numeric, 16383)) FROM generate_series(1, 7900) AS n))""")


def test_headers_at_the_limit_are_judged_alike(shared_connection: psycopg.Connection[Any]) -> None:
    """Both count the same bytes: 128,000 pass, one more does not, whatever the headers are made of."""
    mixed: dict[str, Any] = {"null": None, "flag": True, "n": 1, "f": 0.5, "list": [1, {"é": "ü"}, []], "x-relay-id": "left out", "pad": ""}
    spare = 128_000 - len(plan(json.dumps({"headers": mixed, "CC": "key", "bcc": ["a", "b"]}), 128_000).headers)

    for extra in (0, 1):
        mixed["pad"] = "x" * (spare + extra)
        text = json.dumps({"headers": mixed, "CC": "key", "bcc": ["a", "b"]})
        expected = None if not extra else "options.headers takes 128001 bytes on the wire, CC and BCC included; the limit is 128000 bytes"
        assert expected == _sentence_of_encoder(text) == _sentence_of_database(shared_connection, text)


def test_a_name_at_the_limit_is_taken_by_both(connection: psycopg.Connection[Any]) -> None:
    """255 bytes are taken and 256 are not, by the database and by the encoder."""
    encoder = Encoder(frame_max=131_072, max_body_bytes=1000, allowed_exchanges=None)
    for name, fine in (("é" * 127 + "x", True), ("é" * 128, False)):
        entry = Poison(kind=0, name="", outcome="", columns={"exchange": name})
        assert fine != isinstance(encoder.encode(entry.claim("", "")), PublishResult)
        if fine:
            connection.execute(entry.insert(TABLE))
        else:
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.execute(entry.insert(TABLE))


def _calls(connection: psycopg.Connection[Any], *statements: str) -> Counter[str]:
    """Functions of ours that these statements call, and how often."""
    counted = "SELECT funcname, calls FROM pg_stat_xact_user_functions"
    with connection.transaction():
        connection.execute("SET LOCAL track_functions = 'all'")
        # What earlier transactions have not reported yet is counted too.
        before = Counter(dict(connection.execute(counted).fetchall()))
        for statement in statements:
            connection.execute(statement.encode())
        return Counter(dict(connection.execute(counted).fetchall())) - before


DIGITS = "(SELECT jsonb_object_agg('h' || n, '1e-16380'::jsonb) FROM generate_series(1, {}) AS n)"
"""Headers of so many numbers: some kilobytes as jsonb, 16 kB each as text."""
LONG = {
    "object": f"jsonb_build_object('headers', {DIGITS})",
    "list": f"jsonb_build_object('headers', jsonb_build_object('l', (SELECT jsonb_agg(e.value) FROM jsonb_each({DIGITS}) AS e)))",
    "header of the relay's own": f"jsonb_build_object('headers', jsonb_build_object('x-relay-id', {DIGITS}))",
    "text beside": f"jsonb_build_object('headers', {DIGITS} || jsonb_build_object('t', repeat(chr(1), 100000)))",
    "compressed": "(SELECT options FROM packed)",
    "zeros": "jsonb_build_object('headers', (SELECT jsonb_object_agg('h' || n, ('5.' || repeat('0', 16380))::jsonb) "
    "FROM generate_series(1, {}) AS n))",
}
PACKED = (
    "CREATE TEMP TABLE packed AS SELECT jsonb_build_object('headers', jsonb_build_object('l', jsonb_agg('1e-16380'::jsonb))) AS options"
)


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("into", ["queue_message (exchange, options)", "queue_message_keyed (coalesce_key, exchange, options)"])
def test_options_that_no_relay_sends_are_refused(shared_connection: psycopg.Connection[Any], kind: str, into: str) -> None:
    """20 numbers have 320 KiB as text, and one more is refused; also where a table holds them compressed."""
    key = "'k', " if "key" in into else ""
    for numbers, taken in ((20, True), (21, False)):
        statement = f"INSERT INTO {into} VALUES ({key}'orders', {LONG[kind].format(numbers)})".encode()
        with shared_connection.transaction(force_rollback=True):
            shared_connection.execute(f"{PACKED} FROM generate_series(1, {numbers})".encode())
            # Another plan has its parameters uncompressed.
            shared_connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            if taken:
                shared_connection.execute(statement)
                continue
            with pytest.raises(
                psycopg.errors.CheckViolation, match="options has numbers of more than 327680 bytes as text; write numbers of that"
            ):
                shared_connection.execute(statement)


def _sentence_of_database(connection: psycopg.Connection[Any], text: str) -> str | None:
    [(sentence,)] = connection.execute("SELECT queue_message_options_error(%s::jsonb)", (text,))
    return None if sentence is None else str(sentence)


def _stored(connection: psycopg.Connection[Any], text: str) -> str:
    [(stored,)] = connection.execute("SELECT %s::jsonb::text", (text,))
    return str(stored)


def _sentence_of_encoder(text: str) -> str | None:
    try:
        plan(text, 128_000)
    except OptionsError as error:
        return error.sentence
    return None
