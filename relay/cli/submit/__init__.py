"""The script for spark-submit."""
