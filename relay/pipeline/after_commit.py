"""Keeps what a job has committed as part of its result, whatever cuts the job short afterwards: a lost server, a conflict, a signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from relay.errors import PipelineError, StoppedError
from relay.pipeline.text import many

_NOTED = {
    True: "PostgreSQL has noted that",
    False: "PostgreSQL has not noted that yet",
    None: "whether PostgreSQL has noted that is not known",
}


@dataclass
class CommitGuard:
    """Keeps the first error after a commit, so that the job can end with a result; `committed` is whether there was any commit."""

    committed: bool = False
    error: PipelineError | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep an error or a signal that ends the block; if nothing was committed before, raise it: PipelineError, KeyboardInterrupt."""
        try:
            yield
        except (PipelineError, KeyboardInterrupt) as error:
            if not self.committed:
                raise
            found = StoppedError.behind(error) or self.error or error
            assert isinstance(found, PipelineError), "an interrupt is a StoppedError"
            self.error = found

    @property
    def stopped(self) -> bool:
        """Whether the error is a signal: the process then has little time left, and sends no more queries."""
        return isinstance(self.error, StoppedError)

    @property
    def exit_code(self) -> int:
        """The error's exit code; 0 if nothing went wrong."""
        return self.error.exit_code if self.error else 0

    def failure(self, job: str, done: str, *, say: Callable[[str], None]) -> str | None:
        """Say in one sentence what cut the job short and what is done, and return the sentence; None if nothing went wrong."""
        if self.error is None:
            return None
        sentence = f"The {job} was cut short: {done}, and the next run continues from there: {self.error}"
        say(sentence)
        return sentence


def in_lake(rows: int, files: int, *, noted: bool | None, removed: int = 0) -> str:
    """What an export has committed, and whether PostgreSQL knows of it, in words for `CommitGuard.failure`; `removed` are damaged files."""
    left = f"{many(removed, 'damaged file')} left the table, " if removed else ""
    return f"{left}{many(rows, 'row')} in {many(files, 'file')} {'is' if rows == 1 else 'are'} in the lake; {_NOTED[noted]}"
