"""Why a connection to the broker could not be opened, as one sentence that says what to do."""

from __future__ import annotations

import socket
import ssl

from yarl import URL

from relay.amqp.confirms import Return
from relay.amqp.wire import ACCESS_REFUSED, NOT_ALLOWED


def connect_sentence(url: URL, error: BaseException, closed: Return | None) -> str:
    """Say why; `closed` is the broker's own reason, where it gave one before it closed."""
    where = f"The broker at {url.host}:{url.port}"
    return _refused(where, url, closed) if closed else f"{where} {_trouble(url, error)}."


def _trouble(url: URL, error: BaseException) -> str:  # noqa: PLR0911 - one sentence for each cause
    match error:
        case ssl.SSLCertVerificationError():
            return f"shows a certificate that is not trusted ({error.verify_message}): name its CA in the URL (?cafile=/path/ca.pem)"
        case FileNotFoundError():
            return "cannot be asked: a certificate file that the URL names (cafile, certfile, keyfile) is not there"
        case ssl.SSLError():
            return f"does not speak TLS as asked ({error.reason}): use the port of its TLS listener, or amqp:// without TLS"
        case socket.gaierror():
            return f"has a host name that is not known ({error.strerror}): correct the AMQP URL"
        case TimeoutError():
            return "does not answer: start it, open the network path to it, or correct the AMQP URL"
        case OSError():
            return f"is not reachable ({error.strerror or error}): start it, or correct the AMQP URL"
    return f"did not complete the login ({error!r}): check that {url.scheme}:// and port belong to an AMQP 0-9-1 listener"


def _refused(where: str, url: URL, closed: Return) -> str:
    said = f"({closed.code} {closed.text})"
    if closed.code == ACCESS_REFUSED:
        return f"{where} refused user {url.user!r} {said}: correct user and password in the AMQP URL."
    if closed.code == NOT_ALLOWED:
        return f"{where} refused the vhost {said}: create it, permit it to user {url.user!r}, or correct the AMQP URL."
    return f"{where} closed the connection at the login {said}: look in the broker's log."
