"""What the security tests look for: a secret in every form that a program may give it."""

from __future__ import annotations

import base64
import html
import json
import urllib.parse

import pytest

from tests.support.relays.canary import traces

SECRET = "c4nary?7f>e~"
FORMS = {
    "plain": f"a {SECRET} b",
    "in capitals": SECRET.upper(),
    "broken into lines": f"{SECRET[:5]}\n   {SECRET[5:]}",
    "hexadecimal": f"\\x00{SECRET.encode().hex()}00",
    "hexadecimal, apart": SECRET.encode().hex(" "),
    "escapes of Python": "".join(f"\\x{byte:02x}" for byte in SECRET.encode()),
    "escapes of JSON": "".join(f"\\u{byte:04X}" for byte in SECRET.encode()),
    "escapes of a URL": "".join(f"%{byte:02X}" for byte in SECRET.encode()),
    "octal, as bytea shows it": "".join(f"\\{byte:03o}" for byte in SECRET.encode()),
    "a list of numbers": str(list(SECRET.encode())),
    "numbers of a page": "".join(f"&#{byte};" for byte in SECRET.encode()),
    "hexadecimal of a page": "".join(f"&#x{byte:x};" for byte in SECRET.encode()),
    "reversed": SECRET[::-1],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_found_in_every_form(form: str) -> None:
    """As it is, or as dumps, escapes and lists show it."""
    assert traces(SECRET, f"line 1\n{FORMS[form]}\nline 3")


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes])
def test_a_secret_is_found_in_base64_wherever_it_stands(before: int, encode: type) -> None:
    """The base64 may be of both alphabets, in lines or not, with any text before and behind."""
    for length in (before, before + 60):
        assert traces(SECRET, encode(b"x" * length + SECRET.encode() + b"yz").decode())


def test_half_a_secret_and_other_texts_are_no_trace() -> None:
    """Or every page would have one."""
    for text in (SECRET[:8], SECRET.encode().hex()[:18], base64.b64encode(SECRET.encode()[:8]).decode(), html.escape("nothing"), ""):
        assert [] == traces(SECRET, text + json.dumps({"a": urllib.parse.quote(text)}))
