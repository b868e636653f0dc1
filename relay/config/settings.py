"""Settings, which `load` validates together; components get plain values and never read the environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import PrivateAttr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from relay.config.fields import Fields
from relay.config.sources import PREFIX, RawSetting, gather
from relay.config.types import advice, as_text
from relay.errors import SettingsError
from relay.net.secret_url import Secret, SecretFile
from relay.net.transport_security import weakens

LOCK_SHARE = 0.8
"""Share of the lock time that a drain may take. After the lock time, other relays may reclaim messages that still wait for confirms."""
POLICY = (
    "max_attempts", "backoff_base", "backoff_max", "lock_seconds", "max_body_bytes", "retention_days", "dead_retention_days",
    "received_retention_days", "unroutable", "on_dead_key", "on_lock_expired", "archive", "notify", "direction",
    "dedup_seconds", "bundle_seconds", "bundle_max_messages", "bundle_max_bytes",
)  # fmt: skip
"""Settings that are stored in the database, by their names in the table `queue_message_setting`."""
URLS = ("database_url", "listen_url", "amqp_url", "pipeline_database_url", "pipeline_replica_url")


class SettingDoc(NamedTuple):
    """One setting for the docs; default and meaning are Markdown."""

    name: str
    variable: str
    secret: bool
    """Whether the value may be in a file."""
    default: str
    meaning: str


EMPTY_VALUES = {"http_port": None, "allowed_exchanges": "", "work_seconds": None}
"""The meaning of an empty variable, by setting; an empty list is refused. Any other empty variable counts as unset."""


class Settings(Fields):
    """Every setting by its name without the prefix. `load` makes an instance; tests pass keyword arguments."""

    _files: dict[str, RawSetting] = PrivateAttr(default_factory=dict)
    """Settings that were read from a file, by name."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read keyword arguments only: `load` alone reads the environment."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    def secret(self, name: str, *, changed: Callable[[], None], kept: Callable[[str], None]) -> Secret:
        """The URL of this name, for each new connection. A URL in a file is read again each time, see `SecretFile`."""
        given = self._files.get(name)
        if given is None or given.file is None:
            return str(getattr(self, name).get_secret_value())

        def check(text: str) -> None:
            insecure = RawSetting(_variable("allow_insecure"), as_text(self.allow_insecure))
            if mistakes := _checked({name: given._replace(text=text), "allow_insecure": insecure})[1]:
                raise SettingsError("\n".join(mistakes))

        return SecretFile(given.file, given.text, check=check, changed=changed, kept=kept)

    @property
    def conninfo(self) -> str:
        """Conninfo of the queue's database, with its password; if empty, libpq reads its `PG*` variables."""
        return self.database_url.get_secret_value()

    @property
    def pipeline_conninfo(self) -> str:
        """Conninfo of the pipeline's connections, with its password."""
        return (self.pipeline_database_url or self.database_url).get_secret_value()

    @property
    def pipeline_replica(self) -> str | None:
        """Conninfo of the standby from which an export reads rows, with its password."""
        return None if self.pipeline_replica_url is None else self.pipeline_replica_url.get_secret_value()

    @property
    def lake_storage(self) -> dict[str, str]:
        """Storage options of the lake, with their secrets."""
        return dict(json.loads(self.lake_options.get_secret_value()))

    def policy(self) -> dict[str, str]:
        """The policy settings that were set explicitly, as text for `queue_message_setting`."""
        return {name: as_text(getattr(self, name)) for name in POLICY if name in self.model_fields_set}

    def under(self, database: Mapping[str, str]) -> Self:
        """These settings, overridden by the database's policy.

        Raises:
            SettingsError: the policy has a value that this relay does not know.
        """
        values = {name: text for name, text in database.items() if name in POLICY}
        policy, wrong = _validate(values)
        if wrong:
            unknown = ", ".join(sorted(wrong))
            raise SettingsError(
                f"The database's policy has values that this relay does not know ({unknown}): install a newer outbox-relay."
            )
        return self.model_copy(update={name: getattr(policy, name) for name in values})

    def overruled(self, database: Mapping[str, str]) -> list[tuple[str, str, str]]:
        """Each policy setting that was set explicitly and differs in the database: its name, its value here and its value there."""
        policy = self.under(database)
        return [
            (name, text, as_text(getattr(policy, name)))
            for name, text in self.policy().items()
            if getattr(policy, name) != getattr(self, name)
        ]


def load(environ: Mapping[str, str], env_file: Path | None = Path(".env")) -> Settings:
    """Read and check every setting. `env_file` adds the settings that `environ` lacks; None means no file.

    Raises:
        SettingsError: one sentence for each mistake, each on a line of its own.
    """
    fields = {_variable(name): name for name in Settings.model_fields}
    secrets = [variable for variable, name in fields.items() if _is_secret(name)]
    found, mistakes = gather(environ, env_file, names=fields, secrets=secrets, empty=[_variable(name) for name in EMPTY_VALUES])
    given = {fields[variable]: each for variable, each in found.items()}
    settings, wrong = _checked(given)
    if mistakes or wrong:
        raise SettingsError("\n".join([*mistakes, *wrong]))
    settings._files.update({name: each for name, each in given.items() if each.file})  # noqa: SLF001 - of this module
    return settings


def describe() -> list[SettingDoc]:
    """Every setting with its default and its meaning, for docs/settings.md."""
    return [
        SettingDoc(name, _variable(name), _is_secret(name), _shown(field), f"{field.description} ({_extra(field)['allowed']})")
        for name, field in Settings.model_fields.items()
    ]


def _checked(given: Mapping[str, RawSetting]) -> tuple[Settings, list[str]]:
    """Settings from the valid texts, and one sentence for each mistake."""
    settings, wrong = _validate({name: each.text or EMPTY_VALUES.get(name) for name, each in given.items()})
    mistakes = [_mistake(name, given[name]) for name in wrong]
    mistakes += [sentence for names, sentence in _contradictions(settings) if not wrong.intersection(names)]
    if not settings.allow_insecure:
        urls = {name: given[name] for name in URLS if name in given and name not in wrong}
        mistakes += [_weakened(each.origin, option) for each in urls.values() if (option := weakens(each.text))]
    return settings, mistakes


def _weakened(origin: str, option: str) -> str:
    return (
        f"{origin} has an option that weakens security ({option}): remove it, or, if it is meant, set {_variable('allow_insecure')}=true."
    )


def _validate(values: Mapping[str, Any]) -> tuple[Settings, set[str]]:
    """Settings from the valid values, and the names of the invalid settings."""
    named = {Settings.model_fields[name].alias or name: value for name, value in values.items()}
    try:
        return Settings(**named), set()
    except ValidationError as error:
        aliases = {Settings.model_fields[name].alias or name: name for name in values}
        wrong = {aliases[str(each["loc"][0])] for each in error.errors(include_input=False, include_context=False)}
    settings, _ = _validate({name: value for name, value in values.items() if name not in wrong})
    return settings, wrong


def _contradictions(settings: Settings) -> list[tuple[tuple[str, ...], str]]:
    """Names of settings that contradict each other, each group with its error sentence."""
    longest = LOCK_SHARE * settings.lock_seconds
    found = []
    if settings.backoff_base > settings.backoff_max:
        found.append((("backoff_base", "backoff_max"), "the first wait must not be longer than the longest"))
    if settings.drain_seconds > longest and "drain_seconds" in settings.model_fields_set:
        found.append(
            (("drain_seconds", "lock_seconds"), f"drain for {longest:g} at most, or other relays send what this one still waits for")
        )
    return [(names, f"{_name_values(settings, names)}: {rule}.") for names, rule in found]


def _name_values(settings: Settings, names: tuple[str, ...]) -> str:
    return " and ".join(f"{_variable(name)} is {as_text(getattr(settings, name))}" for name in names)


def _mistake(name: str, given: RawSetting) -> str:
    value = "not usable (not shown)" if _is_secret(name) else repr(given.text)
    allowed = _extra(Settings.model_fields[name])["allowed"]
    return f"{given.origin} is {value}: it must be {allowed}.{advice(given.text) if _is_secret(name) else ''}"


def _variable(name: str) -> str:
    return PREFIX + (Settings.model_fields[name].alias or name).upper()


def _is_secret(name: str) -> bool:
    return "SecretStr" in str(Settings.model_fields[name].annotation)


def _extra(field: FieldInfo) -> Mapping[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _shown(field: FieldInfo) -> str:
    return str(_extra(field)["shown"] or ("none" if field.default is None else f"`{as_text(field.default)}`"))
