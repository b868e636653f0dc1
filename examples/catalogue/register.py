"""Registers the tables of the lake in a Hive metastore, so that Spark finds them by name. Run it again at any time."""

from __future__ import annotations

import os

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

NO_TABLE = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST")
"""The conditions by which Delta says that a folder is missing, or holds no table."""
TABLES = ("archive", "stats_window", "stats_hour", "stats_day")


def main() -> None:
    """Register each table that the lake has, by its folder alone: columns and files are what its Delta log says at the time of a query."""
    lake = os.environ["RELAY_LAKE_URL"].rstrip("/")
    spark = SparkSession.builder.enableHiveSupport().getOrCreate()
    spark.sql("CREATE DATABASE IF NOT EXISTS outbox COMMENT 'The lake of outbox-relay'")
    for table in TABLES:
        print(f"outbox.{table}: {register(spark, table, f'{lake}/{table}')}")


def register(spark: SparkSession, table: str, location: str) -> str:
    """Register one table if it is there; return what became of it."""
    try:
        # CREATE TABLE would make an empty table in a folder that has none, which the pipeline then refuses.
        spark.sql(f"DESCRIBE DETAIL delta.`{location}`")
    except AnalysisException as error:
        if error.getCondition() not in NO_TABLE:
            raise
        return "not in the lake yet"
    spark.sql(f"CREATE TABLE IF NOT EXISTS outbox.{table} USING delta LOCATION '{location}'")
    return "registered"


if __name__ == "__main__":
    main()
