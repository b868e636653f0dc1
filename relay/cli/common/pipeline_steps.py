"""Jobs of the pipeline that run one after the other: the first failure ends the run, and the results before it are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import typer

from relay.cli.common.output import show_json
from relay.cli.common.pipeline_context import plain
from relay.cli.common.support import REFUSED, complain
from relay.errors import RelayError, StoppedError


class FailedStep(NamedTuple):
    """The step that ended the run early, why in one sentence, and the run's exit code.

    `unknown` is an error that relay does not know; `said` is whether the step has said the sentence itself.
    """

    step: str
    sentence: str
    exit_code: int
    unknown: BaseException | None = None
    said: bool = False

    @classmethod
    def of(cls, step: str, error: BaseException) -> Self:
        """A step that raised; a foreign error is named by its type, for its text may hold a payload."""
        if isinstance(error, RelayError):
            return cls(step, str(error), error.exit_code)
        return cls(step, f"An error that relay does not know ({type(error).__name__}).", REFUSED, error)

    def plain(self) -> dict[str, Any]:
        """The fields of the JSON."""
        return {"step": self.step, "error": self.sentence, "exit_code": self.exit_code}


def run_steps(steps: Mapping[str, Callable[[], Any]]) -> tuple[dict[str, Any], FailedStep | None]:
    """Run the steps in order up to the first that raises or was cut short; return the results by name, and that failure.

    A step that was cut short behind a commit has a result as well, whose `failure` says why.

    Raises:
        KeyboardInterrupt: a signal before anything was done.
    """
    done: dict[str, Any] = {}
    for name, step in steps.items():
        try:
            done[name] = step()
        except (Exception, KeyboardInterrupt) as error:
            stopped = StoppedError.behind(error)
            if isinstance(error, KeyboardInterrupt) and not done:
                raise
            return done, FailedStep.of(name, stopped or error)
        if failure := getattr(done[name], "failure", None):
            return done, FailedStep(name, failure, done[name].exit_code, said=True)
    return done, None


def show_steps(done: Mapping[str, Any], failed: FailedStep | None, *, as_json: bool, words: Mapping[str, Callable[[Any], str]]) -> None:
    """Print the results of the steps, and end with the failure's exit code where a step failed."""
    if as_json:
        show_json({**{name: plain(result) for name, result in done.items()}, "failed": failed.plain() if failed else None})
    else:
        for name, result in done.items():
            typer.echo(words[name](result))
    if failed is None:
        return
    if failed.unknown:
        raise failed.unknown
    complain(f"{failed.step} failed{_after([name for name in done if name != failed.step])}{'' if failed.said else f': {failed.sentence}'}")
    raise typer.Exit(failed.exit_code)


def _after(names: list[str]) -> str:
    return f" after {' and '.join(names)} {'was' if len(names) == 1 else 'were'} done" if names else ""
