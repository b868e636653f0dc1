"""Signs webhooks by Standard Webhooks (standardwebhooks.com, symmetric, v1), so that its libraries can verify the webhooks. No I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

PREFIX = "whsec_"
MIN_KEY, MAX_KEY = 24, 64
"""Bytes of a key."""
SECRET = f"{PREFIX} and {MIN_KEY} to {MAX_KEY} bytes in base64; two, separated by a space, while the secret is being rotated"


def keys(secret: str) -> list[bytes]:
    """The keys of a secret; several keys during a key rotation.

    Raises:
        ValueError: there is no key, or a key is malformed; the message shows no part of a key.
    """
    found = [_key(each) for each in secret.split()]
    if not found:
        raise ValueError("no key")
    return found


def signed(secret: str, *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a webhook: its id, its time (seconds since 1970), and for each key a signature over id, time and body."""
    content = b".".join([message_id.encode("ascii"), str(timestamp).encode("ascii"), body])
    signatures = (base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode("ascii") for key in keys(secret))
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{each}" for each in signatures),
    }


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("no base64") from None
    if not (text.startswith(PREFIX) and MIN_KEY <= len(key) <= MAX_KEY):
        raise ValueError("no key of that form")
    return key
