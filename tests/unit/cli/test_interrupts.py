"""Signals that end a job, where it can do nothing itself any more."""

from __future__ import annotations

import signal
import subprocess
import sys

STALLED = """
import os, signal, sys
from relay.cli.common.interrupts import interruptible

with interruptible():
    os.set_blocking(2, False)
    try:
        while True:
            os.write(2, bytes(4096))
    except BlockingIOError:
        os.set_blocking(2, True)
    print("full", flush=True)
    signal.pause()
"""


def test_a_job_ends_although_nobody_reads_what_it_says() -> None:
    """Its error output is full, as before a pager that is not scrolled."""
    with subprocess.Popen([sys.executable, "-c", STALLED], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        try:
            assert job.stdout is not None
            assert b"full\n" == job.stdout.readline()
            job.send_signal(signal.SIGTERM)
            assert 128 + signal.SIGTERM == job.wait(timeout=30)
        finally:
            job.kill()
