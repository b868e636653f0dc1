"""Reads `RELAY_*` settings as text from the environment, a `.env`, and the files named by `NAME_FILE`."""

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
"""The broker's usual variable, shared with other programs; used if `RELAY_AMQP_URL` is not set."""
_SERVICE_LINK = re.compile(r"RELAY_(.+_)?SERVICE_(HOST|PORT(_.+)?)|RELAY_(.+_)?PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


class RawSetting(NamedTuple):
    """The text of one setting, its variable, and the file named by that variable, if any."""

    origin: str
    text: str
    file: Path | None = None


def gather(
    environ: Mapping[str, str], env_file: Path | None, *, names: Collection[str], secrets: Collection[str], empty: Collection[str]
) -> tuple[dict[str, RawSetting], list[str]]:
    """Settings by name, and one sentence for each mistake.

    Args:
        environ: the environment, which overrides the file.
        env_file: a `.env`, read if it exists; None for no file.
        names: all settings, e.g. `RELAY_WINDOW`.
        secrets: settings whose value may be in a file that `NAME_FILE` names.
        empty: settings that may be empty; any other empty variable counts as unset.

    """
    found: dict[str, RawSetting] = {}
    mistakes: list[str] = []
    for variables in (_read(env_file, mistakes), environ):
        layer = {name: text for name, text in variables.items() if text or name in empty}
        mistakes += _unknown(layer, names, secrets)
        found.update({name: RawSetting(name, layer[name]) for name in (*names, AMQP_URL) if name in layer})
        found.update(_from_files(layer, secrets, mistakes))
    plain_amqp_url = found.pop(AMQP_URL, None)
    if plain_amqp_url and f"{PREFIX}AMQP_URL" not in found:
        found[f"{PREFIX}AMQP_URL"] = plain_amqp_url
    return found, list(dict.fromkeys(mistakes))


def _read(env_file: Path | None, mistakes: list[str]) -> dict[str, str]:
    if env_file is None or not env_file.is_file():
        return {}
    try:
        source = DotEnvSettingsSource(BaseSettings, env_file=env_file, env_file_encoding="utf-8", case_sensitive=True)
        return {name: text or "" for name, text in source.env_vars.items()}
    except (OSError, UnicodeDecodeError) as error:
        mistakes.append(f"{env_file} cannot be read ({_reason(error)}): correct or remove it.")
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
        _unknown_name(name, known)
        for name in sorted(layer)
        if name.startswith(PREFIX) and name not in known and not _is_service_link(name, layer[name])
    ]


def _is_service_link(name: str, text: str) -> bool:
    """Whether Kubernetes set this variable, as in every pod of a namespace with a Service named relay; such variables are ignored."""
    return bool(_SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and _SERVICE_URL.match(text)))


def _unknown_name(name: str, known: Collection[str]) -> str:
    # Compare without the common prefix, which makes any two names similar.
    near = difflib.get_close_matches(name.removeprefix(PREFIX), sorted(each.removeprefix(PREFIX) for each in known), n=1, cutoff=0.6)
    return f"{name} is no setting: " + (
        f"did you mean {PREFIX}{near[0]}?" if near else "remove it, or see the list of settings in docs/settings.md."
    )


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "not a text in UTF-8"
