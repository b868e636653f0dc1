"""The PostgreSQL side of the pipeline."""
