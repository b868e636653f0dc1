"""Jobs of three batches each, in which something may come before a batch's commit or right behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from relay.errors import ConflictError, PipelineError
from relay.pipeline.compact import job as compact
from relay.pipeline.erase import job as erase
from relay.pipeline.export import job as export
from relay.pipeline.export import sizes
from relay.pipeline.export.sizes import Sizes
from relay.pipeline.lake import delta_lake
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.metrics import job as metrics
from relay.pipeline.metrics import lake_sink, postgres_sink
from relay.pipeline.replay import job as replay
from relay.pipeline.replay.selection import Selection
from relay.pipeline.source import ranges
from relay.pipeline.source.database import Database
from tests.support.lake import exporting
from tests.support.lake.adding import DAY
from tests.support.lake.compacting import quiet
from tests.support.lake.contents import in_lake
from tests.support.lake.erasing import erase_in_postgres, erased_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Archived

DAYS = [datetime.combine(DAY, time(12), UTC) + timedelta(days=place) for place in range(3)]
Act = Callable[[], object]


class Job(ABC):
    """A job of three batches, between the test's lake and its database."""

    conflict: int = ConflictError.exit_code

    def __init__(self, lake: Lake, url: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lake, self.url, self.spark, self.patch = lake, url, spark, monkeypatch
        self.said: list[str] = []

    @abstractmethod
    def arrange(self, archived: Archived) -> None:
        """Make three batches of work."""

    @abstractmethod
    def run(self, database: Database) -> Any:
        """Do it."""

    @abstractmethod
    def commits(self, *, inside: bool) -> tuple[Any, str]:
        """Owner and name of the function called for each batch: one that is about to commit it or, with `inside`, ends with the commit."""

    @abstractmethod
    def overtake(self, database: Database) -> None:
        """Let the next commit meet a conflict."""

    @abstractmethod
    def done(self, result: Any) -> int:
        """The batches that a result counts."""

    @abstractmethod
    def there(self) -> int:
        """The batches that are committed."""

    def at(self, batch: int, act: Act, *, inside: bool = False) -> None:
        """Let something happen once, before the commit of a batch or right behind it."""
        owner, name = self.commits(inside=inside)
        commit, left = getattr(owner, name), [batch]

        def acting(*given: Any, **named: Any) -> Any:
            counted = not inside or self.counts(given)
            left[0] -= counted
            mine = left[0] == 0 and counted
            if mine and not inside:
                act()
            found = commit(*given, **named)
            if mine and inside:
                act()
            return found

        self.patch.setattr(owner, name, acting)

    def counts(self, given: tuple[Any, ...]) -> bool:
        """Whether a call `inside` is a batch's commit."""
        return given != ()


class Export(Job):
    """Each transaction is a batch."""

    def arrange(self, archived: Archived) -> None:
        """Three transactions, of which each batch takes one."""
        for module in (export, ranges, sizes):
            self.patch.setattr(module, "STEP", 1)
        for _ in DAYS:
            archived({})

    def run(self, database: Database) -> Any:
        """Export them."""
        return export.run(lake=self.lake, database=database, spark=lambda: self.spark, say=self.said.append, sizes=Sizes(batch_rows=1))

    def commits(self, *, inside: bool) -> tuple[Any, str]:
        """The commit of rows and offset."""
        return (delta_lake, "_write") if inside else (Lake, "commit")

    def overtake(self, database: Database) -> None:
        """Another export commits the rest."""
        self.patch.undo()
        exporting.export(self.lake, database)

    def done(self, result: Any) -> int:
        """Each batch is a row and a file; a run without patches takes all that is left at once."""
        assert result.files == result.batches in {result.rows, 1}
        return int(result.rows)

    def there(self) -> int:
        """Rows in the lake."""
        return 0 if self.lake.open("archive") is None else len(in_lake(self.lake))


class Metrics(Job):
    """Each day is a batch."""

    def arrange(self, archived: Archived) -> None:
        """Three days in the lake."""
        self.patch.setattr(metrics, "_ROWS_AT_ONCE", 1)
        archived(*({"archived_at": day} for day in DAYS))
        with Database(self.url) as database:
            exporting.export(self.lake, database)

    def run(self, database: Database) -> Any:
        """Count them."""
        return metrics.run(lake=self.lake, database=database, spark=lambda: self.spark, say=self.said.append)

    def commits(self, *, inside: bool) -> tuple[Any, str]:
        """PostgreSQL gets the numbers first, and the lake's table of days last."""
        return (lake_sink, "replace") if inside else (postgres_sink, "replacing")

    def counts(self, given: tuple[Any, ...]) -> bool:
        """Windows and hours come before."""
        return "day" in given

    def overtake(self, database: Database) -> None:
        """Another run counts a later version of the archive."""
        self.patch.undo()
        exporting.export(self.lake, database)
        metrics.run(lake=self.lake, database=database, spark=lambda: self.spark, say=quiet)

    def done(self, result: Any) -> int:
        """Each batch is a day, a message and a window."""
        assert result.days == result.messages == result.windows
        return int(result.days)

    def there(self) -> int:
        """Days in the lake."""
        return len(lake_sink.numbers_by_day(self.lake))


class Compact(Job):
    """Each day is a commit."""

    def arrange(self, archived: Archived) -> None:
        """Three days of two files each."""
        self.patch.setattr(compact, "AT_ONCE", 1)
        for _ in range(2):
            archived(*({"archived_at": day} for day in DAYS))
            with Database(self.url) as database:
                exporting.export(self.lake, database)

    def run(self, database: Database) -> Any:
        """Compact them in this process."""
        return compact.run(lake=self.lake, database=database, say=self.said.append)

    def commits(self, *, inside: bool) -> tuple[Any, str]:
        """The commit of the new file."""
        return (delta_lake, "_write") if inside else (Lake, "replace")

    def overtake(self, database: Database) -> None:
        """The same job goes through."""
        self.patch.undo()
        compact.run(lake=self.lake, database=database, say=quiet)

    def done(self, result: Any) -> int:
        """Each batch is a day and a file less."""
        assert len(result.days) == result.files_before - result.files_after
        return len(result.days)

    def there(self) -> int:
        """Files that there are no more."""
        return 6 - len(self.lake.check_files("archive"))


class Erase(Job):
    """Each file is a commit."""

    def arrange(self, archived: Archived) -> None:
        """Three days of a file each, with a message that PostgreSQL has erased."""
        self.patch.setattr(erase, "AT_ONCE", 1)
        for day in DAYS:
            archived({"archived_at": day, "ordering_key": "k"})
            with Database(self.url) as database:
                exporting.export(self.lake, database)
        erase_in_postgres(self.url)

    def run(self, database: Database) -> Any:
        """Erase them in this process."""
        return erase.run(lake=self.lake, database=database, say=self.said.append, keys=["k"])

    def commits(self, *, inside: bool) -> tuple[Any, str]:
        """The commit of the new file."""
        return (delta_lake, "_write") if inside else (Lake, "replace")

    def overtake(self, database: Database) -> None:
        """The same job goes through."""
        self.patch.undo()
        erase.run(lake=self.lake, database=database, say=quiet, keys=["k"])

    def counts(self, given: tuple[Any, ...]) -> bool:
        """The first commit has no file: it only repeats the offset."""
        _, actions, *_ = given
        return len(actions) > 0

    def done(self, result: Any) -> int:
        """Each batch is a day, a file and a message."""
        assert len(result.days) == result.files == result.messages
        return int(result.messages)

    def there(self) -> int:
        """Messages that are erased."""
        return len(erased_in(self.lake))


class Replay(Job):
    """Each message is a transaction."""

    conflict = PipelineError.exit_code

    def arrange(self, archived: Archived) -> None:
        """Three messages in the lake."""
        self.patch.setattr(replay, "BATCH", 1)
        archived({}, {}, {})
        with Database(self.url) as database:
            exporting.export(self.lake, database)

    def run(self, database: Database) -> Any:
        """Send them again."""
        return replay.run(lake=self.lake, database=database, say=self.said.append, selection=Selection(exchange="orders"), job="again")

    def commits(self, *, inside: bool) -> tuple[Any, str]:
        """The statement that enqueues."""
        return (Database, "fetch") if inside else (replay._Work, "_enqueue")

    def counts(self, given: tuple[Any, ...]) -> bool:
        """Other statements are none of it."""
        return "enqueue_replayed" in given

    def overtake(self, database: Database) -> None:
        """Another session is in the way, as far as PostgreSQL says."""
        with database.connection() as connection:
            connection.execute(b"""CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'not now' USING ERRCODE = 'lock_not_available'; END $$;
                CREATE TRIGGER z AFTER INSERT ON public.queue_message FOR EACH ROW EXECUTE FUNCTION public.refuse()""")

    def done(self, result: Any) -> int:
        """Messages, by whatever they are counted."""
        assert result.enqueued == result.found - result.done_before - result.left == sum(one.messages for one in result.counts)
        return int(result.enqueued)

    def there(self) -> int:
        """Messages in the queue; a new run finds nothing in its way."""
        with psycopg.connect(self.url) as owner:
            owner.execute("DROP TRIGGER IF EXISTS z ON queue_message")
            [[found]] = owner.execute("SELECT count(*) FROM queue_message").fetchall()
        return int(found)
