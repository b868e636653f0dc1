"""The schedules, readers and sentences of the pipeline's pages: run by a shell, parsed, compiled, held against commands and code.

Airflow is not installed here: its DAG is compiled, and its commands and names are looked at in the syntax tree; it is not executed.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests import ROOT
from tests.support.pages import docs

PAGE, CLUSTERS = (ROOT / "docs" / name for name in ("pipeline.md", "pipeline-clusters.md"))
FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
"""Least and greatest number of crontab's fields."""
ENTRY = "/opt/relay/entry.py"
SCHEDULED = ("run", "compact", "reconcile")
"""What the crontab does, line by line."""


def example(name: str) -> str:
    """The block after the comment `example: name`."""
    found = re.search(
        rf"<!-- example: {name} -->\n```\w+\n(.*?)^```", docs.text_of(PAGE) + docs.text_of(CLUSTERS), re.MULTILINE | re.DOTALL
    )
    assert found, name
    return found[1]


def is_schedule(fields: list[str]) -> bool:
    """Five fields of numbers, ranges, lists, steps or stars, each in its bounds."""
    return len(fields) == len(FIELDS) and all(_fits(field, *bounds) for field, bounds in zip(fields, FIELDS, strict=True))


def _fits(field: str, least: int, greatest: int) -> bool:
    numbers = [int(number) for part in field.split(",") for number in re.findall(r"\d+", part.partition("/")[0])]
    return re.fullmatch(r"[\d*,/-]+", field) is not None and all(least <= number <= greatest for number in numbers)


def settings_of(names: Any) -> set[str]:
    """Those that are ours."""
    return {name for name in names if name.startswith("RELAY_")}


def crontab() -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Variables, and each schedule with its command."""
    lines = example("crontab").splitlines()
    variables = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))
    jobs = [line.split(maxsplit=5) for line in lines if line and not re.match(r"[A-Z_]+=", line)]
    return variables, [(" ".join(fields[:5]), fields[5]) for fields in jobs]


def test_the_crontab_has_schedules_and_settings() -> None:
    """Five fields each, and no percent sign, which cron would take for the end of the line."""
    variables, jobs = crontab()

    assert [True] * 3 == [f"relay pipeline {name} " in command for name, (_, command) in zip(SCHEDULED, jobs, strict=True)]
    assert all(is_schedule(schedule.split()) for schedule, _ in jobs)
    assert settings_of(variables) <= docs.variables()
    assert [] == [command for _, command in jobs if re.search(r"(?<!\\)%", command)]


@pytest.fixture
def relay(tmp_path: Path) -> Path:
    """A folder with a `relay` that notes its words, says something and ends as `code` says."""
    program = tmp_path / "relay"
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\necho said; echo why >&2\nexit $(cat {tmp_path}/code)\n')
    program.chmod(0o755)
    return tmp_path


def by_cron(relay: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a line as cron does, with nothing in the environment but what the crontab sets."""
    environment = {"PATH": f"{relay}:/usr/bin:/bin", "STATE": str(relay)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=20)


@pytest.mark.parametrize("code", [0, 5])
@pytest.mark.parametrize("job", range(3))
def test_a_line_of_the_crontab_is_silent_unless_something_is_wrong(relay: Path, job: int, code: int) -> None:
    """A shell runs it: nothing is printed after success, all of it after a failure, and the exit code is the command's."""
    (relay / "code").write_text(str(code))

    done = by_cron(relay, "/bin/sh", "-c", crontab()[1][job][1])

    assert (code, "" if code == 0 else "said\nwhy\n", "") == (done.returncode, done.stdout, done.stderr)
    assert "" == docs.wrong_command(f"relay {(relay / 'called').read_text().strip()}")


def test_a_line_of_the_crontab_does_not_run_twice_at_a_time(relay: Path) -> None:
    """While one holds the lock, the next says nothing and ends."""
    (relay / "code").write_text("0")

    done = by_cron(relay, "flock", str(relay / "lock"), "/bin/sh", "-c", crontab()[1][0][1])

    assert (0, "") == (done.returncode, done.stdout + done.stderr)
    assert not (relay / "called").exists()


def container() -> dict[str, Any]:
    """The driver's container of the CronJob."""
    job = yaml.safe_load(example("kubernetes"))
    assert ("batch/v1", "CronJob", "Forbid") == (job["apiVersion"], job["kind"], job["spec"]["concurrencyPolicy"])
    assert is_schedule(job["spec"]["schedule"].split())
    [only] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def test_the_job_on_kubernetes_submits_a_command(relay: Path) -> None:
    """A shell runs the container's words with a `spark-submit` that notes its own: settings of Spark's, our script, a command."""
    (relay / "code").write_text("0")
    (relay / "relay").write_text(f"#!/bin/sh\necho {ENTRY}\n")
    (relay / "spark-submit").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{relay}/submitted\n')
    (relay / "spark-submit").chmod(0o755)
    given = container()
    variables = {one["name"]: one.get("value", "10.0.0.7") for one in given["env"]}
    # Kubernetes puts $(NAME) in before the shell sees it.
    [script] = [re.sub(r"\$\((POD_\w+)\)", lambda name: variables[name[1]], words) for words in given["args"]]

    subprocess.run([*given["command"], script], env={"PATH": f"{relay}:/usr/bin:/bin"}, check=True, timeout=20)

    submitted = (relay / "submitted").read_text().splitlines()
    before, after = submitted[: submitted.index(ENTRY)], submitted[submitted.index(ENTRY) + 1 :]
    assert "" == docs.wrong_command(shlex.join(["relay", "pipeline", *after]))
    assert {"--master", "--deploy-mode", "--conf"} == {word for word in before if word.startswith("--")}
    assert all(re.fullmatch(r"spark\.[\w.]+=\S+", before[place + 1]) for place, word in enumerate(before) if word == "--conf")


def test_the_job_on_kubernetes_has_its_settings_and_secrets() -> None:
    """Names of variables are settings, files of secrets lie where the volume is mounted."""
    given = container()
    [mount] = given["volumeMounts"]

    assert settings_of(one["name"] for one in given["env"]) <= docs.variables()
    files = [one["value"] for one in given["env"] if one["name"].endswith("_FILE")]
    assert files
    assert all(Path(file).parent == Path(mount["mountPath"]) for file in files)


def test_the_airflow_dag_compiles_and_runs_our_command() -> None:
    """One task, so that nothing hides a failed step: Airflow judges a run by its last tasks alone. Every setting is one."""
    text = example("airflow")
    compile(text, "dag.py", "exec")
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    commands = [command for command in strings if command.startswith("relay ")]

    assert ["relay pipeline run --json"] == commands
    assert (1, "") == (text.count("BashOperator("), docs.wrong_command(commands[0]))
    assert "trigger_rule" not in text
    assert settings_of(strings) <= docs.variables()
    [schedule] = re.findall(r'schedule="([^"]+)"', text)
    assert is_schedule(schedule.split())


def sentences() -> Iterator[str]:
    """The code in the first column of the last table, without metrics."""
    table = docs.text_of(PAGE).partition("## When something is wrong")[2]
    for line in re.findall(r"^\| (.*?) \|", table, re.MULTILINE):
        yield from (span for span in re.findall(r"`([^`]+)`", line) if " " in span)


def said() -> str:
    """All texts of the pipeline, of its commands and of the settings, with one mark for what is filled in."""
    folders = ("relay/pipeline/**/*.py", "relay/cli/**/*.py", "relay/postgres/errors.py")
    places = [path for folder in folders for path in ROOT.glob(folder)]
    return "\n".join(text for path in places for text in _texts(ast.parse(docs.text_of(path))))


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_sentence_of_the_table_is_one_that_is_said() -> None:
    """Word for word, but for what is filled in."""
    texts = said()

    found = list(sentences())
    assert len(found) > 15
    assert [] == [sentence for sentence in found if not all(part.strip() in texts for part in sentence.split("…"))]
