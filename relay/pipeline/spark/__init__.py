"""The Spark session of the pipeline, and functions that run in Spark's tasks."""
