"""Lets a job that is cut short after a commit still report what it committed. A lost server, a conflict or a signal may cut it short."""

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
    """Keeps the error that cuts a job short after a commit, so that the job can still return a result.

    `committed` is whether the job has committed anything.
    """

    committed: bool = False
    error: PipelineError | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep a PipelineError or KeyboardInterrupt that ends the block; raise the exception instead if nothing was committed before."""
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
        """Whether the kept error is a signal. After a signal the process has little time left, so the job sends no more queries."""
        return isinstance(self.error, StoppedError)

    @property
    def exit_code(self) -> int:
        """The error's exit code; 0 if nothing went wrong."""
        return self.error.exit_code if self.error else 0

    def failure(self, job: str, done: str, *, say: Callable[[str], None]) -> str | None:
        """Report and return one sentence: what cut the job short, and what is done; None if nothing cut the job short."""
        if self.error is None:
            return None
        sentence = f"The {job} was cut short: {done}, and the next run continues from there: {self.error}"
        say(sentence)
        return sentence


def in_lake(rows: int, files: int, *, noted: bool | None, removed: int = 0) -> str:
    """The text for `CommitGuard.failure` about an export: what it committed, and whether PostgreSQL has recorded that.

    `removed` is the number of damaged files that were removed from the table.
    """
    left = f"{many(removed, 'damaged file')} left the table, " if removed else ""
    return f"{left}{many(rows, 'row')} in {many(files, 'file')} {'is' if rows == 1 else 'are'} in the lake; {_NOTED[noted]}"
