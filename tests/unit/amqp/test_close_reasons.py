"""The broker's sentences are distinguished by its own words, whatever names they quote."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from yarl import URL

from relay.amqp.close_reasons import FORMS, CloseReason, Form, Subject, said
from relay.amqp.connection_errors import channels_allowed, connect_sentence
from relay.amqp.frames import ReplyReason
from relay.amqp.publishing.refusals import refusal_of

LIMIT = 7
HOSTILE = [
    "access to exchange",
    "x' in vhost '/' refused for user 'u",
    "x': connection limit (3) is reached",
    "x': user connection limit (3) is reached",
    "x' has reached the maximum allowed user limit of (3)",
    "x' has reached the maximum allowed user limit of 3",
    "x': vhost '/' is down",
    "line\nline",
    "ключ",
    "",
    "'" * 40,
    *(form.text for form in FORMS),
    *(form.text.partition(" - ")[2] for form in FORMS),
    *(form.text.partition("}")[2] for form in FORMS),
]
EXCHANGES = {Subject.EXCHANGE_MISSING, Subject.EXCHANGE_REFUSED, Subject.EXCHANGE_INTERNAL}
CHANNELS = {Subject.USER_CHANNELS, Subject.NODE_CHANNELS, Subject.CONNECTION_CHANNELS}


def quoting(form: Form, name: str) -> str:
    """The sentence with a name in every place for one, before the broker cuts it."""
    return re.sub(r"\{(\w+)\}", lambda found: str(LIMIT) if found[1] in {"limit", "opened"} else name, form.text)


def cuts(text: str) -> Iterator[str]:
    """The sentence as old and new versions cut it."""
    yield text if len(text.encode()) <= 255 else text.encode()[:252].decode(errors="ignore") + "..."
    yield text if len(text) <= 255 else text[:252] + "..."


@pytest.mark.parametrize("form", FORMS, ids=[f"{form.about.name}-{number}" for number, form in enumerate(FORMS)])
def test_no_name_in_a_sentence_makes_it_another(form: Form) -> None:
    """Exchanges, queues, keys, users, vhosts and nodes that quote the broker's words, whole sentences of it included."""
    for whole in (quoting(form, name) for name in HOSTILE):
        assert said(ReplyReason(form.code, whole)) == CloseReason(form.about, LIMIT if "{limit}" in form.text else None), whole
        for text in cuts(whole):
            found = said(ReplyReason(form.code, text))
            assert found is None or found.about == form.about, text
            assert refusal_of(ReplyReason(form.code, text)).of_exchange == (form.about in EXCHANGES), text
            assert channels_allowed(ReplyReason(form.code, text)) in ({LIMIT, 0} if form.about in CHANNELS else {None}), text


def test_a_stream_is_known_although_the_end_of_its_sentence_is_cut_off() -> None:
    """Another argument that is invalid, of a queue with a hostile name, is none."""
    assert CloseReason(Subject.STREAM) == said(ReplyReason(406, "PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'qqqqqqqq..."))
    assert said(ReplyReason(406, "PRECONDITION_FAILED - invalid arg 'x-credit' for queue 'invalid arg 'x-priority'' in vhost '/'")) is None


@pytest.mark.parametrize("form", FORMS, ids=[f"{form.about.name}-{number}" for number, form in enumerate(FORMS)])
def test_a_sentence_of_another_code_is_none_of_these(form: Form) -> None:
    """The code is the broker's own word too."""
    assert said(ReplyReason(311, form.text)) is None


def test_what_is_no_sentence_of_the_list_is_about_nothing() -> None:
    """Nor is one that has such a sentence in its middle."""
    for text in ("", "NOT_ALLOWED", "NOT_ALLOWED - New secret was refused by one of the backends", "x" + FORMS[0].text):
        assert said(ReplyReason(530, text)) is None


REFUSED = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
DENIED = "NOT_ALLOWED - access to vhost 'v' refused for user"


@pytest.mark.parametrize(
    ("code", "text", "words"),
    [
        (403, REFUSED, "refused user 'u' ("),
        (403, REFUSED, "loopback_users"),
        (530, "NOT_ALLOWED - vhost v not found", "create 'v' (rabbitmqctl add_vhost)"),
        (530, f"{DENIED} 'u'", "permit 'v' to user 'u' (rabbitmqctl set_permissions)"),
        (541, "INTERNAL_ERROR - access to vhost 'v' refused for user 'u': vhost 'v' is down", "rabbitmqctl restart_vhost"),
        (530, f"{DENIED} 'u': connection limit (7) is reached", "has no connection left in vhost 'v'"),
        (530, "NOT_ALLOWED - connection refused for user 'u': user connection limit (7) is reached", "no connection left for user 'u'"),
        (530, "NOT_ALLOWED - connection refused: node connection limit (7) is reached", "or raise connection_max in its configuration."),
        (530, f"{DENIED} 'connection limit (7) is reached'", "permit 'v' to user 'u'"),
        (530, "NOT_ALLOWED - a new reason", "closed the connection at the login (530 NOT_ALLOWED - a new reason): look in"),
    ],
)
def test_each_refusal_of_a_login_has_the_advice_that_mends_it(code: int, text: str, words: str) -> None:
    """It quotes the broker, and names what to do about that and nothing else."""
    sentence = connect_sentence(URL("amqp://u:secret@broker.example/v"), OSError(), ReplyReason(code, text))
    assert words in sentence
    assert f"({code} {text})" in sentence
    assert "secret" not in sentence
