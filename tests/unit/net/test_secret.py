"""A secret's file that is read again: which text applies while it is right, broken or gone, and what is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relay.config.settings import Settings, load
from relay.errors import SettingsError
from relay.net.secret_url import SecretFile

GOOD = "postgresql://relay:one@host/queue"
CANARY = "hunter2-canary"


class Told:
    """What became of the file, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def of(self, settings: Settings, name: str = "database_url") -> SecretFile:
        """The source of a setting that is in a file."""
        secret = settings.secret(name, changed=lambda: self.lines.append("changed"), kept=self.lines.append)
        assert isinstance(secret, SecretFile)
        return secret


@pytest.fixture
def told() -> Told:
    """Hears."""
    return Told()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a conninfo."""
    path = tmp_path / "database_url"
    path.write_text(f"{GOOD}\n")
    return path


def read(file: Path, **environ: str) -> Settings:
    """Settings whose database URL is in the file."""
    return load({"RELAY_DATABASE_URL_FILE": str(file), **environ}, None)


def test_a_plain_value_stays_what_it_was() -> None:
    """The environment of a process does not change."""
    settings = load({"RELAY_DATABASE_URL": GOOD}, None)

    assert GOOD == settings.secret("database_url", changed=pytest.fail, kept=pytest.fail)


def test_another_text_holds_from_the_next_connection_on(file: Path, told: Told) -> None:
    """Each change is reported, but not that the same text was written again."""
    secret = told.of(read(file))
    seen = [secret()]
    for text in (GOOD, GOOD.replace("one", "two"), GOOD.replace("one", "three"), GOOD.replace("one", "three") + "\n\n"):
        file.write_text(text)
        seen.append(secret())

    assert [GOOD, GOOD, GOOD.replace("one", "two"), *[GOOD.replace("one", "three")] * 2] == seen
    assert ["changed"] * 2 == told.lines


@pytest.mark.parametrize(
    "broken", ["", "   \n", f"mysql://{CANARY}", f"host={CANARY} nonsense", f"postgresql://a:{CANARY}@b/?sslmode=allow"]
)
def test_a_text_that_is_not_usable_leaves_the_last_one_and_is_told_once(file: Path, told: Told, broken: str) -> None:
    """The rules are those of the start, and the text itself is not shown. A later break is reported again."""
    secret = told.of(read(file))
    for text in (broken, broken, GOOD, broken):
        file.write_text(text)
        assert GOOD == secret()

    assert 2 == len(told.lines)
    assert all(line.startswith("RELAY_DATABASE_URL_FILE ") for line in told.lines)
    assert all(line.endswith(". Its previous content is used meanwhile.") for line in told.lines)
    assert CANARY not in "".join(told.lines)


def test_a_file_that_is_gone_leaves_the_last_text_and_is_told_once(file: Path, told: Told) -> None:
    """This happens while a secret is mounted again; when the file is back, its text applies."""
    secret = told.of(read(file))
    file.unlink()
    assert [GOOD] * 3 == [secret() for _ in range(3)]
    file.write_text(GOOD.replace("one", "two"))

    assert GOOD.replace("one", "two") == secret()
    gone = f"{file} cannot be read (No such file or directory): write it again. Its previous content is used meanwhile."
    assert [gone, "changed"] == told.lines


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_what_is_no_text_leaves_the_last_one(file: Path, told: Told, content: bytes | None) -> None:
    """Bytes that are no UTF-8, and a folder in the file's place."""
    secret = told.of(read(file))
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)

    assert GOOD == secret()
    assert 1 == len(told.lines)


def test_a_pipe_is_read_once(tmp_path: Path, told: Told) -> None:
    """As with <(command) of a shell: a second look would wait for a writer for ever."""
    reading, writing = os.pipe()
    os.write(writing, GOOD.encode())
    os.close(writing)
    settings = read(Path(f"/dev/fd/{reading}"))
    secret = told.of(settings)

    assert [GOOD] * 2 == [secret(), secret()]
    assert [] == told.lines
    os.close(reading)
    del tmp_path


def test_a_switch_that_was_set_on_purpose_holds_for_what_is_read_later(file: Path, told: Told) -> None:
    """What is refused without it is taken with it."""
    secret = told.of(read(file, RELAY_ALLOW_INSECURE="true"))
    file.write_text(f"{GOOD}?sslmode=disable")

    assert f"{GOOD}?sslmode=disable" == secret()
    assert ["changed"] == told.lines


def test_a_relative_name_is_the_file_that_was_meant_at_the_start(
    file: Path, told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever becomes of the working directory."""
    monkeypatch.chdir(file.parent)
    secret = told.of(read(Path(file.name)))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    file.write_text(GOOD.replace("one", "two"))

    assert GOOD.replace("one", "two") == secret()


def test_a_file_without_end_is_not_read_without_end(tmp_path: Path) -> None:
    """A wrong name must not fill the memory, and a part of a text must not pass for the whole."""
    (tmp_path / "long").write_text(GOOD + " " * (1 << 20))

    with pytest.raises(SettingsError, match=r"cannot be read \(longer than 65536 bytes\): name a readable file"):
        read(tmp_path / "long")
