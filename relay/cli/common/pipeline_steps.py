"""Runs jobs of the pipeline one after the other. A failed job stops only the jobs that need its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import typer

from relay.cli.common.output import show_json
from relay.cli.common.pipeline_context import plain
from relay.cli.common.support import REFUSED, complain
from relay.errors import RelayError, StoppedError

SIGNALLED = 128
"""Exit codes above this number are a signal's."""


class FailedStep(NamedTuple):
    """A step that failed: its name, the reason in one sentence, and the exit code.

    `unknown` is whether the error is not one of the relay's own errors; `said` is whether the step has already printed the sentence.
    """

    step: str
    sentence: str
    exit_code: int
    unknown: BaseException | None = None
    said: bool = False

    @classmethod
    def of(cls, step: str, error: BaseException) -> Self:
        """The failure of a step that raised an error. A foreign error is named by its type, because its text may contain a payload."""
        if isinstance(error, RelayError):
            return cls(step, str(error), error.exit_code)
        return cls(step, f"An error that relay does not know ({type(error).__name__}).", REFUSED, error)

    @property
    def stopped(self) -> bool:
        """Whether a signal stopped the step."""
        return self.exit_code > SIGNALLED

    def plain(self) -> dict[str, Any]:
        """The fields of the JSON."""
        return {"step": self.step, "error": self.sentence, "exit_code": self.exit_code}


def run_steps(
    steps: Mapping[str, Callable[[], Any]], *, needs: Mapping[str, str] = MappingProxyType({})
) -> tuple[dict[str, Any], list[FailedStep]]:
    """Run the steps in order, up to a signal; return the results by name, and the steps that raised an error or were cut short.

    A step that was cut short after a commit also has a result, whose `failure` says why.

    Args:
        steps: the functions to run, by name.
        needs: for the name of a step, the other step whose result it needs to run.

    Raises:
        KeyboardInterrupt: a signal came before anything was done.
    """
    done: dict[str, Any] = {}
    failed: list[FailedStep] = []
    for name, step in steps.items():
        if needs.get(name) not in {None, *done}:
            continue
        try:
            done[name] = step()
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt) and not (done or failed):
                raise
            failed.append(FailedStep.of(name, StoppedError.behind(error) or error))
        else:
            if failure := getattr(done[name], "failure", None):
                failed.append(FailedStep(name, failure, done[name].exit_code, said=True))
        if failed and failed[-1].stopped:
            break
    return done, failed


def show_steps(done: Mapping[str, Any], failed: Sequence[FailedStep], *, as_json: bool, words: Mapping[str, Callable[[Any], str]]) -> None:
    """Print the results of the steps. If steps failed, print the first failure at the end, and exit with its code."""
    if as_json:
        every = [one.plain() for one in failed]
        show_json({**{name: plain(result) for name, result in done.items()}, "failed": every[0] if every else None, "failures": every})
    else:
        for name, result in done.items():
            typer.echo(words[name](result))
    if not failed:
        return
    first, *later = failed
    for one in later:
        complain(_line(one))
    if first.unknown:
        raise first.unknown
    complain(_line(first, [name for name in done if name not in {one.step for one in failed}]))
    raise typer.Exit(first.exit_code)


def _line(failed: FailedStep, done: Sequence[str] = ()) -> str:
    """The line about a failed step; for an operator it also names the steps that were `done`."""
    beside = f" ({' and '.join(done)} {'was' if len(done) == 1 else 'were'} done)" if done else ""
    return f"{failed.step} failed{beside}{'' if failed.said else f': {failed.sentence}'}"
