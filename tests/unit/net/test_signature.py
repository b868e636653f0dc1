"""Webhooks are signed as Standard Webhooks says."""

from __future__ import annotations

import pytest

from relay.net.webhook_signature import keys, signed

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + "QUFB" * 8


def test_the_published_example_has_the_published_signature() -> None:
    """The one that the libraries of the convention are tested with."""
    headers = signed(SECRET, message_id="msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp=1614265330, body=b'{"test": 2432232314}')

    assert {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    } == headers


def test_while_a_secret_is_changed_both_sign() -> None:
    """So a receiver may know either."""
    [first, second] = signed(
        f"{OTHER} {SECRET}", message_id="msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp=1614265330, body=b'{"test": 2432232314}'
    )["webhook-signature"].split()

    assert first != second
    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == second


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_c2hvcnQ=", "plain text", OTHER.removeprefix("whsec_"), "whsec_" + "QUFB" * 40, "whsec_\u00e4"]
)
def test_what_is_no_secret_is_refused_and_not_repeated(secret: str) -> None:
    """Too short, too long, not base64, without the mark."""
    with pytest.raises(ValueError, match=r"^no (base64|key|key of that form)$"):
        keys(secret)
