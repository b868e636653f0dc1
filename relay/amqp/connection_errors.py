"""Why a connection to the broker could not be opened, as one sentence that says what to do."""

from __future__ import annotations

import socket
import ssl

from aiormq.exceptions import AuthenticationError
from yarl import URL

from relay.amqp.close_reasons import Subject, said
from relay.amqp.frames import ACCESS_REFUSED, ReplyReason
from relay.net.transport_security import in_brackets

_EXPIRED = 10
_OTHER_NAME = frozenset((62, 63, 64))
"""OpenSSL's codes (x509_vfy.h). `_EXPIRED`: the certificate has expired. `_OTHER_NAME`: host name, mail or IP address does not match."""
_SILENT = (
    "took the connection and does not answer: if it has reached its limit of connections (connection_max), close others or raise that "
    "limit; otherwise check whether it hangs"
)
_CHANNELS = frozenset((Subject.USER_CHANNELS, Subject.NODE_CHANNELS, Subject.CONNECTION_CHANNELS))
_REFUSALS = {
    Subject.LOGIN_REFUSED: (
        "refused user {user}",
        "correct user and password in the AMQP URL; users in the broker's loopback_users, such as guest, log in on its machine only",
    ),
    Subject.VHOST_MISSING: ("refused the vhost", "create {vhost} (rabbitmqctl add_vhost), or correct the AMQP URL"),
    Subject.VHOST_REFUSED: (
        "refused the vhost",
        "permit {vhost} to user {user} (rabbitmqctl set_permissions), or correct the AMQP URL",
    ),
    Subject.VHOST_DOWN: ("refused the vhost", "start {vhost} again (rabbitmqctl restart_vhost), or see in the broker's log why it is down"),
    Subject.VHOST_FULL: (
        "has no connection left in vhost {vhost}",
        "close others, or raise the vhost's limit (rabbitmqctl set_vhost_limits)",
    ),
    Subject.USER_FULL: ("has no connection left for user {user}", "close others, or raise the user's limit (rabbitmqctl set_user_limits)"),
    Subject.NODE_FULL: ("has no connection left on its node", "close others, or raise connection_max in its configuration"),
}
"""For each refusal of a login: what was refused, and what to do."""
_OWN_FILES = "a certificate file that the URL names (cafile, certfile, keyfile)"


def connect_sentence(url: URL, error: BaseException, closed: ReplyReason | None, *, accepted: bool = False) -> str:
    """Say why the login failed. `closed`: the reason that the broker gave before it closed. `accepted`: TCP was connected."""
    where = f"The broker at {in_brackets(url.host)}:{url.port}"
    if closed:
        return _refused(where, url, closed)
    if accepted and isinstance(error, TimeoutError):
        return f"{where} {_SILENT}."
    return f"{where} {_trouble(url, error)}."


def channels_allowed(reason: ReplyReason) -> int | None:
    """How many channels the limit allows, if the broker closed the connection over one channel too many; 0 if the number is cut off.

    No message of this connection is the cause. Each new connection that asks for as many channels would be closed again.
    """
    found = said(reason)
    return (found.limit or 0) if found and found.about in _CHANNELS else None


def _trouble(url: URL, error: BaseException) -> str:  # noqa: PLR0911 - one sentence for each cause
    match error:
        case ssl.SSLCertVerificationError():
            return f"shows a certificate that is not trusted ({error.verify_message}): {_mend(error.verify_code)}"
        case FileNotFoundError():
            return f"cannot be asked: {_OWN_FILES} is not there"
        case ssl.SSLError() if error.library in {"X509", "PEM"}:
            return f"cannot be asked: {_OWN_FILES} holds no certificate, or a key of another one ({error.reason}): correct it"
        case AuthenticationError():
            return f"offers other ways to log in ({error.args[0]}): correct auth= in the AMQP URL, or enable what it names in the broker"
        case ssl.SSLError():
            return f"does not speak TLS as asked ({error.reason}): use the port of its TLS listener, or amqp:// without TLS"
        case socket.gaierror():
            return f"has a host name that is not known ({error.strerror}): correct the AMQP URL"
        case TimeoutError():
            return "does not answer: start it, open the network path to it, or correct the AMQP URL"
        case ConnectionError() if url.scheme == "amqps" and not isinstance(error, ConnectionRefusedError):
            return f"hung up in the login over TLS ({error}): if it asks for a certificate, name a valid one in the URL (certfile, keyfile)"
        case OSError():
            return f"is not reachable ({error.strerror or error}): start it, or correct the AMQP URL"
    return f"did not complete the login ({error!r}): check that {url.scheme}:// and port belong to an AMQP 0-9-1 listener"


def _mend(code: int) -> str:
    if code == _EXPIRED:
        return "renew it at the broker"
    if code in _OTHER_NAME:
        return "write a name that it is for as the host into the AMQP URL"
    return "name its CA in the URL (?cafile=/path/ca.pem)"


def _refused(where: str, url: URL, closed: ReplyReason) -> str:
    words, found = f"({closed.code} {closed.text})", said(closed)
    if closed.code == ACCESS_REFUSED and url.query.get("auth", "").lower() == "external":
        return f"{where} refused the relay's certificate as a login {words}: add a user of the name that it is for."
    if found is None or found.about not in _REFUSALS:
        return f"{where} closed the connection at the login {words}: look in the broker's log."
    refused, mend = _REFUSALS[found.about]
    user = repr(url.user or "guest") if "auth" not in url.query else "of the certificate"
    names = {"user": user, "vhost": repr(_vhost(url))}
    return f"{where} {refused.format(**names)} {words}: {mend.format(**names)}."


def _vhost(url: URL) -> str:
    return url.path[1:] or "/"
