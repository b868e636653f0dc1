"""Compares a data file's footer (rows, columns and types) with the table's log and schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.lake.errors import damaged
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_reader import OpenedFile
from relay.pipeline.source.columns import DAY, without_day
from relay.pipeline.text import many


@dataclass(frozen=True)
class FooterCheck:
    """Checks files of a table while they are read. This small object is sent to Spark's tasks.

    Args:
        place: root of the lake.
        schema: the table's schema, as its log has it.
    """

    place: LakeLocation
    schema: pa.Schema

    def of(self, logged: LoggedFile) -> Callable[[OpenedFile], None]:
        """A function that compares an opened file with the file that the log names; it raises DamagedError if they differ."""

        def check(file: OpenedFile) -> None:
            if words := difference(file, self.schema, logged.rows):
                raise damaged(ValueError(words), self.place, file.path)

        return check


def difference(file: OpenedFile, schema: pa.Schema, rows: int, *, new: bool = False) -> str | None:
    """How a file differs from the table; None if there is no difference.

    Two differences are allowed. A file that is older than a nullable column need not have the column. Another program may have written the
    same kind of value with another width of offsets or unit of time. For a `new` file of this package, neither is allowed.
    """
    return next(_differences(file, without_day(schema), rows, new=new), None)


def _differences(file: OpenedFile, schema: pa.Schema, rows: int, *, new: bool) -> Iterator[str]:
    if file.metadata.num_rows != rows:
        yield f"it has {many(file.metadata.num_rows, 'row')}, and the table's log says {rows:,}"
    there = {field.name: field.type for field in file.schema}
    for field in schema:
        if (found := there.pop(field.name, None)) is None:
            if new or not field.nullable:
                yield f"it has no column {field.name}"
        elif found != field.type and (new or _kind(found) != _kind(field.type)):
            yield f"its column {field.name} is {found}, and the table's {field.type}"
    there.pop(DAY.name, None)
    yield from (f"it has a column {name}, and the table none" for name in there)


def _kind(type_: pa.DataType) -> object:
    """The kind of a type for a reader of the table, without its width of offsets or unit of time."""
    if pa.types.is_dictionary(type_):
        return _kind(type_.value_type)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return "string"
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return "binary"
    return f"timestamp {type_.tz}" if pa.types.is_timestamp(type_) else type_
