"""Prints a table of the lake as DuckDB's own Delta reader sees it, for a test to compare: types, and rows in the form of AS_TEXT.

A program of `build/readers`. Its time zone is not UTC, so that a time that is no instant would move.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import duckdb_extension_delta

PLAIN = {"TIMESTAMP WITH TIME ZONE": 'epoch_us("{}")', "BLOB": 'hex("{}")', "DATE": '"{}"::VARCHAR'}
"""What JSON has no word for."""


def main(table: str, order: str) -> None:
    """Read all rows of the table in this folder, in the order of these columns."""
    [extension] = Path(str(duckdb_extension_delta.__file__)).parent.rglob("delta.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"SET TimeZone = 'Asia/Kolkata'; LOAD '{extension}'")
    types = {name: kind for name, kind, *_ in connection.execute("DESCRIBE FROM delta_scan(?)", [table]).fetchall()}
    columns = ", ".join(PLAIN.get(kind, '"{}"').format(name) for name, kind in types.items())
    rows = connection.execute(f"SELECT {columns} FROM delta_scan(?) ORDER BY {order}", [table]).fetchall()
    print(json.dumps({"types": types, "rows": rows}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
