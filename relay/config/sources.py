"""Finds `RELAY_*` settings as text: in the environment, in a `.env`, in the files that `NAME_FILE` names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic_settings import BaseSettings, DotEnvSettingsSource

from relay.errors import SettingsError
from relay.net.secret_url import read

PREFIX = "RELAY_"
AMQP_URL = "AMQP_URL"
"""The broker's usual variable, which other programs read too; it holds where `RELAY_AMQP_URL` is not set."""
_SERVICE_LINK = re.compile(r"RELAY_(.+_)?SERVICE_(HOST|PORT(_.+)?)|RELAY_(.+_)?PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


class RawSetting(NamedTuple):
    """The text of one setting, the variable that it came from, and the file that this names, if it does."""

    origin: str
    text: str
    file: Path | None = None


def gather(
    environ: Mapping[str, str], env_file: Path | None, *, names: Collection[str], secrets: Collection[str], empty: Collection[str]
) -> tuple[dict[str, RawSetting], list[str]]:
    """Settings by name, and a sentence for each mistake.

    Args:
        environ: holds against the file.
        env_file: read where it exists; None for no file.
        names: the settings there are, e.g. `RELAY_WINDOW`.
        secrets: those that a file may hold, named by `NAME_FILE`.
        empty: those that may be empty; an empty variable counts as unset for all others.

    """
    found: dict[str, RawSetting] = {}
    mistakes: list[str] = []
    for variables in (_read(env_file, mistakes), environ):
        layer = {name: text for name, text in variables.items() if text or name in empty}
        mistakes += _unknown(layer, names, secrets)
        found.update({name: RawSetting(name, layer[name]) for name in (*names, AMQP_URL) if name in layer})
        found.update(_from_files(layer, secrets, mistakes))
    usual = found.pop(AMQP_URL, None)
    if usual and f"{PREFIX}AMQP_URL" not in found:
        found[f"{PREFIX}AMQP_URL"] = usual
    return found, list(dict.fromkeys(mistakes))


def _read(env_file: Path | None, mistakes: list[str]) -> dict[str, str]:
    if env_file is None or not env_file.is_file():
        return {}
    try:
        source = DotEnvSettingsSource(BaseSettings, env_file=env_file, env_file_encoding="utf-8", case_sensitive=True)
        return {name: text or "" for name, text in source.env_vars.items()}
    except (OSError, UnicodeDecodeError) as error:
        mistakes.append(f"{env_file} cannot be read ({_reason(error)}): mend it or take it away.")
        return {}


def _from_files(layer: Mapping[str, str], secrets: Collection[str], mistakes: list[str]) -> dict[str, RawSetting]:
    found = {}
    for name in (*secrets, AMQP_URL):
        origin = f"{name}_FILE"
        if origin not in layer:
            continue
        if name in layer:
            mistakes.append(f"{name} and {origin} are both set: keep one of them.")
            continue
        try:
            path = Path(layer[origin]).absolute()
            found[name] = RawSetting(origin, read(path), path)
        except SettingsError as error:
            mistakes.append(f"{origin} is {layer[origin]!r}, which cannot be read ({error}): name a readable file that holds {name}.")
    return found


def _unknown(layer: Mapping[str, str], names: Collection[str], secrets: Collection[str]) -> list[str]:
    known = {*names, *(f"{name}_FILE" for name in secrets)}
    return [
        _proposal(name, known) for name in sorted(layer) if name.startswith(PREFIX) and name not in known and not _links(name, layer[name])
    ]


def _links(name: str, text: str) -> bool:
    """Kubernetes sets such variables in every pod beside a Service named relay; they are nobody's mistake."""
    return bool(_SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and _SERVICE_URL.match(text)))


def _proposal(name: str, known: Collection[str]) -> str:
    # Without what they have in common: it would make any two names close.
    near = difflib.get_close_matches(name.removeprefix(PREFIX), sorted(each.removeprefix(PREFIX) for each in known), n=1, cutoff=0.6)
    return f"{name} is no setting: " + (
        f"did you mean {PREFIX}{near[0]}?" if near else "take it away, or see the list of settings in docs/settings.md."
    )


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "not a text in UTF-8"
