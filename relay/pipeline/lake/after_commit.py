"""What a job has committed to the lake stays, and is part of its result, though PostgreSQL or the object store is lost afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from relay.errors import UnreachableError
from relay.pipeline.text import many

_NOTED = {
    True: "PostgreSQL has noted that",
    False: "PostgreSQL has not noted that yet",
    None: "whether PostgreSQL has noted that is not known",
}


@dataclass
class CommitGuard:
    """Keeps the first loss behind a commit, so that the job can end with a result; `committed` is whether there was any commit."""

    committed: bool = False
    error: UnreachableError | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """End the block at a loss; UnreachableError where nothing was committed before it."""
        try:
            yield
        except UnreachableError as error:
            if not self.committed:
                raise
            self.error = self.error or error

    @property
    def exit_code(self) -> int:
        """0 where nothing was lost."""
        return self.error.exit_code if self.error else 0

    def failure(self, job: str, committed: str, *, noted: bool | None, say: Callable[[str], None]) -> str | None:
        """Say what was lost in one sentence, and return it; it has what is in the lake, and whether PostgreSQL knows of that.

        None where nothing was lost.
        """
        if self.error is None:
            return None
        sentence = f"The {job} was cut short: {committed}; {_NOTED[noted]}, and the next run continues from there: {self.error}"
        say(sentence)
        return sentence


def in_lake(rows: int, files: int) -> str:
    """What an export has committed, as a part of that sentence."""
    return f"{many(rows, 'row')} in {many(files, 'file')} {'is' if rows == 1 else 'are'} in the lake"
