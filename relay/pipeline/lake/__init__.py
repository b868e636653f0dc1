"""The lake side of the pipeline: Delta tables and their files."""
