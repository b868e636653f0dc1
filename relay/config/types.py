"""Types of settings: the allowed values, and their description in messages."""

from __future__ import annotations

import json
import re
import socket
from typing import Annotated, Any, Literal, get_args

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from yarl import URL

from relay.engine.policy import parse_unroutable
from relay.net.amqp_url import each_host
from relay.net.transport_security import wrong_amqp_option
from relay.net.webhook_signature import SECRET, keys

_BEYOND_POSTGRESQL_LOGIN = re.compile(r"postgres(?:ql)?://(?:[^@/]*@)?([^?]*)", re.DOTALL)
_BEYOND_AMQP_HOST = re.compile(r"amqps?://[^/?#]*(.*)", re.DOTALL)
"""The parts that libpq and the AMQP library read as host and path. An @ in these parts means that a password was not percent-encoded:
a part of the password would be read as a host, a port or a database, and errors would show it."""
_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
"""A percent sign that is not encoded. The AMQP library accepts such a sign unchanged, and libpq refuses it."""
_ROLE_PREFIX = re.compile(r"(?!pg_)[a-z][a-z0-9_]{0,53}")
"""The longest prefix, with _ and the longest role name after it, has 63 bytes, which is PostgreSQL's limit of a name."""
_UNKNOWN_PARAMETER = re.compile(r'invalid URI query parameter: "(.*)"')


def setting(default: Any, allowed: str, meaning: str, shown: str | None = None, **more: Any) -> Any:
    """A field with its default, allowed values and meaning, and the default as shown in the docs."""
    given = {"default_factory": default} if callable(default) else {"default": default}
    return Field(**given, description=meaning, json_schema_extra={"allowed": allowed, "shown": shown}, **more)


def whole(default: int | None, low: int, high: int, meaning: str, also: str = "") -> Any:
    """A whole number within bounds."""
    return setting(default, f"a whole number from {low} to {high}{also}", meaning, ge=low, le=high)


def seconds(default: float | None, low: float, high: float, meaning: str, also: str = "") -> Any:
    """A number of seconds within bounds."""
    return setting(default, f"a number from {low:g} to {high:g}{also}", meaning, ge=low, le=high, allow_inf_nan=False)


def word(default: str | None, words: Any, meaning: str, shown: str | None = None) -> Any:
    """One of the words of a Literal."""
    return setting(default, f"one of {', '.join(get_args(words))}", meaning, shown=shown)


def _checked_unroutable(value: str) -> str:
    default, exceptions = parse_unroutable(value)
    return ",".join([default, *(f"{exchange}={chosen}" for exchange, chosen in exceptions.items())])


def _checked_conninfo(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    try:
        parts = conninfo_to_dict(text)
    except ProgrammingError:
        raise ValueError("no conninfo") from None
    beyond = _BEYOND_POSTGRESQL_LOGIN.match(text)
    ports = str(parts.get("port") or "").split(",")
    if (beyond and "@" in beyond[1]) or not all(port.isdecimal() or not port for port in ports):
        raise ValueError("a password that is not percent-encoded")
    return value


def _checked_amqp(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    for host in map(URL, each_host(text)):
        if host.scheme not in {"amqp", "amqps"} or not host.host:
            raise ValueError("no AMQP URL")
    beyond = _BEYOND_AMQP_HOST.match(text)
    if (beyond and "@" in beyond[1]) or _NO_ESCAPE.search(text):
        raise ValueError("a password that is not percent-encoded")
    if wrong_amqp_option(text):
        raise ValueError("an option that is not known")
    return value


def advice(url: str) -> str:
    """Advice on a wrong URL, without the URL itself; empty for a text that is no URL."""
    if not re.match(r"\w+://", url):
        return ""
    # If an @ follows the question mark, the text after the question mark may be a part of a password.
    wrong = None if "@" in url.partition("?")[2] else _wrong_option(url)
    return f" {wrong}" if wrong else " In a URL user, password and names must be percent-encoded: @ as %40, / as %2F, # as %23, % as %25."


def _wrong_option(url: str) -> str | None:
    if url.lower().startswith("amqp"):
        return wrong_amqp_option(url)
    unknown = _unknown_parameter(url)
    return None if unknown is None else f"There is no parameter {unknown!r}: correct or remove it."


def _unknown_parameter(conninfo: str) -> str | None:
    """The parameter of a PostgreSQL URL that libpq does not know."""
    try:
        conninfo_to_dict(conninfo)
    except ProgrammingError as error:
        found = _UNKNOWN_PARAMETER.match(str(error))
        return found[1] if found else None
    return None


def _checked_options(value: SecretStr) -> SecretStr:
    options = json.loads(value.get_secret_value())
    if not isinstance(options, dict) or not all(isinstance(each, str) for each in options.values()):
        raise ValueError("no JSON object of texts")
    return value


def _checked_webhook_secret(value: SecretStr) -> SecretStr:
    keys(value.get_secret_value())
    return value


def _checked_name(value: str) -> str:
    if not value or not value.isprintable():
        raise ValueError("not printable")
    return value


def _checked_role_prefix(value: str) -> str:
    if not _ROLE_PREFIX.fullmatch(value):
        raise ValueError("no beginning of a role's name")
    return value


def host_name() -> str:
    """The default name of a relay."""
    return socket.gethostname()[:40] or "relay"


DEFAULT_EXCHANGE = "amq.default"
"""The default exchange in a list; its real name is empty."""


def _split(value: object) -> object:
    """Names between commas; the default exchange is named as in RabbitMQ's permissions ("Access Control", rabbitmq.com)."""
    if not isinstance(value, str):
        return value
    names = tuple(part.strip() for part in value.split(","))
    if "" in names:
        raise ValueError("an empty name")
    return tuple("" if name == DEFAULT_EXCHANGE else name for name in names)


def as_text(value: object) -> str:
    """A value as text for `queue_message_setting` and the environment; numbers have at most six decimals."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


CONNINFO = "a PostgreSQL URL (postgresql://user:password@host/database) or a conninfo (host=... dbname=...)"
WEBHOOK_SECRET = SECRET
OPTIONS = """a JSON object of texts such as {"AWS_REGION": "eu-west-1"}"""
AMQP = "an AMQP URL such as amqps://user:password@host/vhost, with commas between several hosts"
Conninfo = Annotated[SecretStr, AfterValidator(_checked_conninfo)]
Printable = Annotated[str, AfterValidator(_checked_name)]
RolePrefix = Annotated[str, AfterValidator(_checked_role_prefix)]
AmqpUrl = Annotated[SecretStr, AfterValidator(_checked_amqp)]
Options = Annotated[SecretStr, AfterValidator(_checked_options)]
WebhookSecret = Annotated[SecretStr, AfterValidator(_checked_webhook_secret)]
UnroutablePolicy = Annotated[str, AfterValidator(_checked_unroutable)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Notify = Literal["idle", "always", "off"]
OnDeadKey = Literal["continue", "park"]
OnLockExpired = Literal["retry", "archive"]
Archived = Literal["all", "failures"]
Direction = Literal["outbox", "inbox"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json"]
