"""What a replay holds to, from the archive or from the lake."""

from __future__ import annotations

LONGEST_JOB = 255
"""Bytes of a job's name, as the ledger takes them."""
SHOWN = 20
"""Refused messages that are named; all are counted."""
