"""The live archive as a Spark data source: `register` makes `spark.read.format("queue_message_archive")` available in a session."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from relay.config.settings import load
from relay.errors import PipelineError
from relay.pipeline.lake.range_writer import complete, statement
from relay.pipeline.source import adbc
from relay.pipeline.source.columns import ArchiveColumn, guarded_list, schema_of
from relay.pipeline.source.database import Database
from relay.pipeline.source.ranges import BEYOND, RowRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "queue_message_archive"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_DIGITS = 6
"""The most digits that a number of tasks may have; no cluster needs more."""
_COMPARED = {EqualTo: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}
_PUSHED = frozenset({"text", "int2", "int4", "int8", "timestamptz", "uuid", "bool"})
"""Types whose order and equality are the same in Spark and, by the collation "C", in PostgreSQL."""


def register(spark: SparkSession) -> None:
    """Make the format known to the session.

    Options: `url`, which Spark never shows, by default the driver's RELAY_PIPELINE_DATABASE_URL or RELAY_DATABASE_URL; `schema`, by default
    RELAY_SCHEMA or public; `partitions`, the number of tasks that share the work, 1 by default. Filters are sent to PostgreSQL where Spark
    allows it. If an option is wrong, Spark's error contains one sentence about it.
    """
    pushes = str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(PushingArchive if pushes else ArchiveSource)


class Given(NamedTuple):
    """The options; an absent `url` or `schema` comes from the settings of this process."""

    url: str
    schema: str
    partitions: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Given:
        """Read the options; PipelineError or SettingsError if an option is unknown or wrong, or no database is named at all."""
        given = {name.lower(): text for name, text in options.items()}
        if unknown := sorted(given.keys() - set(cls._fields)):
            raise PipelineError(f"{NAME} has no option {unknown[0]}: it takes {', '.join(cls._fields)}.")
        chosen = None if given.get("url") and given.get("schema") else load(os.environ)
        url = given.get("url") or (chosen.pipeline_conninfo if chosen else "")
        if not url and not os.environ.keys() & {"PGHOST", "PGSERVICE", "PGDATABASE"}:
            raise PipelineError(
                f'{NAME} knows no database: set RELAY_PIPELINE_DATABASE_URL before the session begins, or .option("url", …).'
            )
        return cls(url, given.get("schema") or (chosen.schema_name if chosen else ""), _tasks(given.get("partitions", "1")))


def _tasks(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:_DIGITS]) and len(text) <= _DIGITS):
        raise PipelineError(f"The option partitions of {NAME} is {text!r}: give a whole number from 1 on.")
    return int(text)


class ArchiveSource(DataSource):
    """The archive with all of its columns, with the lake's types; `.schema(…)` selects columns."""

    @classmethod
    def name(cls) -> str:
        """The name of the format, for `spark.read.format`."""
        return NAME

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = Given.of(options)

    def schema(self) -> StructType:
        """Every column of the archive, and `day`."""
        with self._database() as database:
            return from_arrow_schema(schema_of(database.columns()))

    def reader(self, schema: StructType) -> ArchiveReader:
        """A reader of these columns."""
        return ArchiveReader(*self._asked(), {field.name: field.nullable for field in schema}, self._given.partitions)

    def _database(self) -> Database:
        return Database(self._given.url, schema=self._given.schema)

    def _asked(self) -> tuple[str, str, list[ArchiveColumn]]:
        with self._database() as database:
            return database.complete_conninfo("archive"), database.statement("read_live").decode().replace("%%", "%"), database.columns()


class PushingArchive(ArchiveSource):
    """`ArchiveSource` for sessions in which Spark passes filters to the reader."""

    def reader(self, schema: StructType) -> ArchiveReader:
        """A reader that accepts filters."""
        return PushingReader(*self._asked(), {field.name: field.nullable for field in schema}, self._given.partitions)


class ArchiveRange(InputPartition):
    """The share of the archive that one task reads."""

    def __init__(self, cut: RowRange) -> None:
        super().__init__(cut)
        self.cut = cut


class ArchiveReader(DataSourceReader):
    """Reads committed rows, by ADBC in each task. If rows are committed during the read, some tasks may see them and others not."""

    def __init__(self, conninfo: str, query: str, columns: list[ArchiveColumn], wanted: Mapping[str, bool], tasks: int) -> None:
        known = schema_of(columns)
        if unknown := [name for name in wanted if name not in known.names]:
            raise PipelineError(f"The archive has no column {unknown[0]}: leave it out of .schema(…).")
        self._conninfo, self._query, self._columns, self._tasks = conninfo, query, columns, tasks
        # A column that the user declares nullable has to be nullable here, even if the archive never has a null in this column.
        self._schema = pa.schema([known.field(name).with_nullable(nullable) for name, nullable in wanted.items()])
        self._conditions: list[str] = []

    def partitions(self) -> list[ArchiveRange]:
        """One share for each task. The task's number alone defines its share, so no statement is needed to divide the archive."""
        return [ArchiveRange(RowRange(0, BEYOND, part, self._tasks)) for part in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one share, as Arrow batches."""
        assert isinstance(partition, ArchiveRange)
        needed = {*self._schema.names, "xid", "seq", "archived_at"}
        columns = guarded_list([column for column in self._columns if column.name in needed]).as_string(None)
        # The condition is inserted last, because its values may contain any text, even a placeholder.
        query = (
            statement(self._query, partition.cut)
            .replace("@columns@", columns)
            .replace("@condition@", " AND ".join(self._conditions) or "true")
        )
        with adbc.connected(self._conninfo) as connection:
            for batch in connection.batches(query):
                yield complete(batch, self._schema)


class PushingReader(ArchiveReader):
    """Adds to the statement each filter that PostgreSQL evaluates as Spark does; Spark applies the other filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - the name is Spark's
        """Take the filters that PostgreSQL can apply; return the others."""
        kinds = {column.name: column.kind for column in self._columns}
        for one in filters:
            condition = _condition(one, kinds)
            if condition is None:
                yield one
            else:
                self._conditions.append(condition)


def _condition(found: Filter, kinds: Mapping[str, str]) -> str | None:
    """A filter as SQL with quoted values, or None if PostgreSQL might evaluate the filter differently from Spark."""
    path: tuple[str, ...] = getattr(found, "attribute", ())
    kind = kinds.get(path[0]) if len(path) == 1 else None
    operator = "=" if isinstance(found, In) else _COMPARED.get(type(found))
    if kind not in _PUSHED or operator is None or (kind == "uuid" and operator != "="):
        return None
    values = [_literal(value) for value in (found.value if isinstance(found, In) else [getattr(found, "value", None)])]
    if None in values:
        return None
    name = sql.Identifier(path[0]).as_string(None) + ("::text" if kind == "uuid" else ' COLLATE "C"' if kind == "text" else "")
    return "(" + " OR ".join(f"{name} {operator} {value}" for value in values) + ")" if values else "false"


def _literal(value: Any) -> str | None:
    if isinstance(value, str) and "\0" in value:
        return None
    if isinstance(value, datetime) and value.tzinfo is None:
        return None
    return sql.Literal(value).as_string(None) if isinstance(value, bool | int | str | datetime) else None
