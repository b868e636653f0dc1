"""Prints a table of the lake as delta-spark sees it, for a test to compare: types, and rows in the form of AS_TEXT.

A program of `build/readers`. Its time zone is not UTC, so that a time that is no instant would move.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

PLAIN = {"timestamp": "unix_micros(`{}`)", "binary": "hex(`{}`)", "date": "CAST(`{}` AS string)"}
"""What JSON has no word for."""


def main(table: str, order: str) -> None:
    """Read all rows of a table, by its folder or by its name in a catalogue, in the order of these columns."""
    spark = SparkSession.builder.config("spark.sql.session.timeZone", "Asia/Kolkata").getOrCreate()
    found = spark.sql(f"SELECT * FROM {table} ORDER BY {order}")
    types = dict(found.dtypes)
    rows = found.selectExpr(*(PLAIN.get(kind, "`{}`").format(name) for name, kind in types.items())).collect()
    print(json.dumps({"types": types, "rows": [list(row) for row in rows]}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
